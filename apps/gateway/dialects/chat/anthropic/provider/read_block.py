"""Anthropic Messages, provider side: reads an answer's content blocks: thinking, text, tool calls, and Anthropic's own.

The canonical language knows thinking, one text and a list of calls. An answer that is more than that (searches of the
provider's own, citations, thinking between calls) is kept as it is beside it. Must never know what is around blocks.
"""

from __future__ import annotations

from typing import Any

import msgspec

from apps.gateway.canonical.events import (
    Annotated,
    Event,
    OpaqueDelta,
    ReasoningDelta,
    Searched,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
)
from apps.gateway.dialects.adapting.document_citations import LOCATIONS
from apps.gateway.dialects.chat.anthropic.shared.wire import CALLER, NAME, SIGNATURE_FORMAT, encode, new_id
from apps.gateway.dialects.reading.call_arguments import says_nothing

Record = dict[str, Any]

# The server's own tool whose calls other formats have words for.
_SEARCH = "web_search"
# The order in which an answer's blocks are written from the canonical language, and their fields.
_ORDER = {"thinking": 0, "redacted_thinking": 0, "text": 1, "tool_use": 2}
_FIELDS = {
    "thinking": frozenset({"type", "thinking", "signature", "format", "id"}),
    "redacted_thinking": frozenset({"type", "data", "format", "id"}),
    "text": frozenset({"type", "text"}),
    "tool_use": frozenset({"type", "id", "name", "input"}),
}


class BlockReader:
    """What has been read of an answer's blocks so far."""

    def __init__(self) -> None:
        self.calls = 0
        self._open: dict[int, _Block] = {}
        self._content: list[Record] = []
        self._thoughts = 0
        self._written = 0
        self._last = ""

    def begin(self, index: int, wire: Any, events: list[Event], arguments: msgspec.Raw | None = None) -> None:
        """Add the events of a block that begins; of a whole one, too. `arguments` are a call's as it wrote them."""
        if index in self._open:
            self.end(index, events)
        kind = wire.get("type") if isinstance(wire, dict) else None
        if not isinstance(kind, str):
            return
        block = self._open[index] = _Block(kind, dict(wire), number=self._thoughts, at=self._written)
        if kind == "text":
            self._begin_text(block, events)
        elif kind in {"thinking", "redacted_thinking"}:
            self._thoughts += 1
            self._think(block, wire, events)
        elif kind == "tool_use":
            self._call(block, wire, events, arguments)
        else:
            self._say_own({"start": wire}, events)
        self._last = kind

    def go_on(self, index: int, delta: Any, events: list[Event]) -> None:
        """Add the events of a delta."""
        block = self._open.get(index)
        if block is None or not isinstance(delta, dict):
            return
        kind = _text(delta.get("type"))
        if kind == "text_delta" and block.kind == "text":
            self._say(block, delta.get("text"), events)
        elif kind in {"thinking_delta", "signature_delta"} and block.kind == "thinking":
            self._think(block, delta, events)
        elif kind == "input_json_delta" and block.kind == "tool_use":
            self._argue(block, delta.get("partial_json"), events)
        else:
            if kind == "citations_delta" and isinstance(citation := delta.get("citation"), dict):
                block.citations.append(citation)
            elif kind == "input_json_delta" and isinstance(piece := delta.get("partial_json"), str):
                block.pieces.append(piece)
            self._say_own({"delta": delta}, events)

    def end(self, index: int, events: list[Event]) -> None:
        """Add what could only be said when a block is complete."""
        block = self._open.pop(index, None)
        if block is None:
            return
        if block.kind == "tool_use" and not block.pieces:
            self._argue(block, "{}", events)
        for citation in block.citations:
            if isinstance(url := citation.get("url"), str):
                cited = {"url": url, "title": citation.get("title") or "", "start_index": block.at}
                note = {"type": "url_citation", "url_citation": {**cited, "end_index": self._written}}
                events.append(Annotated(annotation=note))
            elif citation.get("type") in LOCATIONS:
                events.append(Annotated(annotation=citation))
        whole = block.whole()
        if block.kind == "server_tool_use" and whole.get("name") == _SEARCH:
            query = whole["input"].get("query") if isinstance(whole.get("input"), dict) else None
            events.append(Searched(query=_text(query) or ""))
        self._content.append(whole)

    def close(self, events: list[Event]) -> None:
        """Add what is left to say: the blocks as they were, when the canonical language does not say it all."""
        for index in sorted(self._open):
            self.end(index, events)
        if not _is_ordinary(self._content):
            events.append(OpaqueDelta(dialect=NAME, data={"content": self._content}))

    def _begin_text(self, block: _Block, events: list[Event]) -> None:
        wire = block.start
        cited = wire.get("citations")
        block.citations = [one for one in cited if isinstance(one, dict)] if isinstance(cited, list) else []
        if self._last == "text" or not wire.keys() <= _FIELDS["text"]:
            self._say_own({"start": {**wire, "text": ""}}, events)
        self._say(block, wire.get("text"), events)

    def _say(self, block: _Block, text: Any, events: list[Event]) -> None:
        if isinstance(text, str) and text:
            block.pieces.append(text)
            self._written += len(text)
            events.append(TextDelta(text=text))

    def _think(self, block: _Block, wire: Record, events: list[Event]) -> None:
        text, signature, data = _text(wire.get("thinking")), _text(wire.get("signature")), _text(wire.get("data"))
        if text:
            block.pieces.append(text)
        if signature:
            block.signature = signature
        if not (text or signature or data):
            return
        kept, name = _text(block.start.get("format")), _text(block.start.get("id"))
        events.append(
            ReasoningDelta(
                text=text or "",
                signature=signature,
                data=data,
                id=name,
                format=kept or SIGNATURE_FORMAT,
                block=block.number,
            )
        )

    def _call(self, block: _Block, wire: Record, events: list[Event], arguments: msgspec.Raw | None) -> None:
        block.number = self.calls
        self.calls += 1
        name = _text(wire.get("name")) or ""
        call_id = block.start["id"] = _text(wire.get("id")) or new_id("toolu_")
        # Who called, a program at the provider or the model, comes back with the call.
        caller = wire.get(CALLER)
        extra = {CALLER: caller} if isinstance(caller, dict) else None
        events.append(ToolCallStarted(index=block.number, id=call_id, name=name, extra=extra))
        written = bytes(arguments).decode() if arguments is not None else encode(wire.get("input") or {}).decode()
        if written != "{}" and not says_nothing(written):
            self._argue(block, written, events)

    def _argue(self, block: _Block, piece: Any, events: list[Event]) -> None:
        if isinstance(piece, str) and piece:
            block.pieces.append(piece)
            events.append(ToolCallDelta(index=block.number, arguments=piece))

    def _say_own(self, data: Record, events: list[Event]) -> None:
        events.append(OpaqueDelta(dialect=NAME, data=data, of="stream"))


class _Block:
    """A block that has begun, and what came of it since."""

    __slots__ = ("at", "citations", "kind", "number", "pieces", "signature", "start")

    def __init__(self, kind: str, start: Record, *, number: int, at: int) -> None:
        self.kind = kind
        self.start = start
        self.number = number
        self.at = at
        self.pieces: list[str] = []
        self.citations: list[Record] = []
        self.signature: str | None = None

    def whole(self) -> Record:
        """Return the block as a plain answer has it."""
        text = "".join(self.pieces)
        if self.kind == "text":
            return {**self.start, "text": text, **({"citations": self.citations} if self.citations else {})}
        if self.kind == "thinking":
            return {**self.start, "thinking": text, "signature": self.signature or ""}
        if not text:
            return self.start
        try:
            return {**self.start, "input": msgspec.json.decode(text)}
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return {**self.start, "input": {"arguments": text}}


def _is_ordinary(content: list[Record]) -> bool:
    """Return whether the canonical language says all: thinking, then one text, then calls, and nothing about them."""
    kinds = [block["type"] for block in content]
    places = [_ORDER.get(kind, -1) for kind in kinds]
    return (
        -1 not in places
        and places == sorted(places)
        and kinds.count("text") <= 1
        and all(block.get("text") != "" for block in content)
        and all(_stated(block) <= _FIELDS[block["type"]] for block in content)
    )


def _stated(block: Record) -> set[str]:
    """Return the names of the fields that say something."""
    return {name for name, value in block.items() if value not in (None, [])}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None

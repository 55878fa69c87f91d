"""Bedrock Converse, provider side: reads an answer's content blocks: text, reasoning, tool use, images, citations.

What runs at the provider (its own tools and what they answered) is kept as it is beside the answer. Must never know
what is around blocks.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error
from typing import Any

import msgspec

from apps.gateway.canonical.events import (
    Annotated,
    Event,
    ImageMade,
    OpaqueDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
)
from apps.gateway.dialects.chat.anthropic.shared.wire import SIGNATURE_FORMAT
from apps.gateway.dialects.chat.bedrock.provider.citations import read_citation
from apps.gateway.dialects.chat.bedrock.shared.wire import NAME, Record, encode

_SERVER_TOOL = "server_tool_use"


class BlockReader:
    """What has been read of an answer's blocks so far."""

    def __init__(self) -> None:
        self.calls = 0
        self._open: dict[int, _Block] = {}
        self._thoughts = self._written = 0
        self._foreign: list[Record] = []

    def begin(self, index: int, start: Any, events: list[Event]) -> None:
        """Add the events of a block that announces what it is: a call, what a tool answered, an image."""
        if index in self._open:
            self.end(index, events)
        block = self._block(index)
        if not isinstance(start, dict):
            return
        if isinstance(use := start.get("toolUse"), dict):
            self._call(block, use, events)
        elif isinstance(image := start.get("image"), dict):
            block.image_format = _word(image.get("format")) or "png"
        elif start:
            block.foreign = {name: value for name, value in start.items() if isinstance(value, dict)}

    def go_on(self, index: int, delta: Any, events: list[Event]) -> None:
        """Add the events of a delta."""
        if not isinstance(delta, dict):
            return
        block = self._block(index)
        use, image = delta.get("toolUse"), delta.get("image")
        if isinstance(text := delta.get("text"), str):
            self._say(text, events)
        elif isinstance(thought := delta.get("reasoningContent"), dict):
            self._think(block, thought, events)
        elif isinstance(use, dict):
            self._argue(block, use.get("input"), events)
        elif isinstance(image, dict):
            source = image.get("source")
            block.pieces.append(_word(source.get("bytes") if isinstance(source, dict) else None) or "")
        elif isinstance(citation := delta.get("citation"), dict):
            block.citations.append(citation)
        elif isinstance(answered := delta.get("toolResult"), list):
            block.content.extend(answered)

    def whole(self, index: int, wire: Record, arguments: bytes | None, events: list[Event]) -> None:
        """Add the events of a whole block. `arguments` are a call's as the model wrote them."""
        use, thought, image = wire.get("toolUse"), wire.get("reasoningContent"), wire.get("image")
        cited = wire.get("citationsContent")
        if isinstance(use, dict):
            self.begin(index, {"toolUse": use}, events)
            given = arguments or encode(use.get("input") or {})
            self.go_on(index, {"toolUse": {"input": given.decode("utf-8", "replace")}}, events)
        elif isinstance(thought, dict):
            text = thought.get("reasoningText")
            for name, value in (text if isinstance(text, dict) else thought).items():
                self.go_on(index, {"reasoningContent": {name: value}}, events)
        elif isinstance(image, dict):
            self.begin(index, {"image": image}, events)
            self.go_on(index, {"image": image}, events)
        elif isinstance(cited, dict):
            self._whole_citations(index, cited, events)
        elif isinstance(wire.get("text"), str):
            self.go_on(index, wire, events)
        elif wire:
            self._block(index).foreign = wire
        self.end(index, events)

    def end(self, index: int, events: list[Event]) -> None:
        """Add what could only be said when a block is complete."""
        block = self._open.pop(index, None)
        if block is None:
            return
        written = "".join(block.pieces)
        if block.image_format is not None and written:
            events.append(ImageMade(url=f"data:image/{block.image_format};base64,{written}"))
        if block.number is not None and not block.pieces:
            events.append(ToolCallDelta(index=block.number, arguments="{}"))
        for citation in block.citations:
            if (note := read_citation(citation)) is not None:
                events.append(Annotated(annotation=note))
            elif url := _web_address(citation):
                page = {"url": url, "title": citation.get("title") or "", "start_index": block.at}
                cited = {"type": "url_citation", "url_citation": {**page, "end_index": self._written}}
                events.append(Annotated(annotation=cited))
        if block.citations:
            self._foreign.append({"citations": block.citations})
        if block.foreign is not None:
            self._foreign.append(block.whole_foreign(written))

    def close(self, events: list[Event]) -> None:
        """Add what is left to say."""
        for index in sorted(self._open):
            self.end(index, events)
        if self._foreign:
            events.append(OpaqueDelta(dialect=NAME, data={"content": self._foreign}))

    def _block(self, index: int) -> _Block:
        """Return the block of that number: one that says text or thinks does not announce itself."""
        block = self._open.get(index)
        if block is None:
            block = self._open[index] = _Block(at=self._written)
        return block

    def _say(self, text: str, events: list[Event]) -> None:
        if text:
            self._written += len(text)
            events.append(TextDelta(text=text))

    def _think(self, block: _Block, thought: Record, events: list[Event]) -> None:
        """Add thinking. Who signs it is a Claude, whose signatures are the same wherever it runs; whose thinking nobody
        signs, nobody takes back."""
        text, signature = _word(thought.get("text")), _word(thought.get("signature"))
        redacted = _word(thought.get("redactedContent"))
        data = _inner_text(redacted) if redacted else None
        if not (text or signature or data):
            return
        if block.thought is None:
            block.thought = self._thoughts
            self._thoughts += 1
        events.append(
            ReasoningDelta(
                text=text or "", signature=signature, data=data, format=SIGNATURE_FORMAT, block=block.thought
            )
        )

    def _call(self, block: _Block, use: Record, events: list[Event]) -> None:
        name = _word(use.get("name")) or ""
        if use.get("type") == _SERVER_TOOL:
            block.foreign = {"toolUse": {key: value for key, value in use.items() if key != "input"}}
        else:
            block.number = self.calls
            self.calls += 1
            call_id = _word(use.get("toolUseId")) or f"tooluse_{block.number}"
            events.append(ToolCallStarted(index=block.number, id=call_id, name=name))

    def _argue(self, block: _Block, piece: Any, events: list[Event]) -> None:
        if not isinstance(piece, str) or not piece:
            return
        block.pieces.append(piece)
        if block.number is not None:
            events.append(ToolCallDelta(index=block.number, arguments=piece))

    def _whole_citations(self, index: int, cited: Record, events: list[Event]) -> None:
        said, citations = cited.get("content"), cited.get("citations")
        for part in said if isinstance(said, list) else ():
            self.go_on(index, part, events)
        for citation in citations if isinstance(citations, list) else ():
            self.go_on(index, {"citation": citation}, events)


class _Block:
    """A block that has begun, and what came of it since."""

    __slots__ = ("at", "citations", "content", "foreign", "image_format", "number", "pieces", "thought")

    def __init__(self, *, at: int) -> None:
        self.at = at
        self.number: int | None = None
        self.thought: int | None = None
        self.image_format: str | None = None
        self.foreign: Record | None = None
        self.pieces: list[str] = []
        self.content: list[Any] = []
        self.citations: list[Record] = []

    def whole_foreign(self, written: str) -> Record:
        """Return a block of the provider's own as a plain answer has it."""
        wire = dict(self.foreign or {})
        if isinstance(use := wire.get("toolUse"), dict) and written:
            try:
                wire["toolUse"] = {**use, "input": msgspec.json.decode(written)}
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                wire["toolUse"] = {**use, "input": {"arguments": written}}
        if isinstance(result := wire.get("toolResult"), dict) and self.content:
            wire["toolResult"] = {**result, "content": self.content}
        return wire


def _inner_text(encoded: str) -> str | None:
    """Return the text that base64 holds: redacted thinking is text of its maker's, which its other formats have bare.
    What is no text goes back to nobody."""
    try:
        return b64decode(encoded, validate=True).decode() or None
    except (Error, ValueError):
        return None


def _web_address(citation: Record) -> str | None:
    location = citation.get("location")
    web = location.get("web") if isinstance(location, dict) else None
    return _word(web.get("url")) if isinstance(web, dict) else None


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None

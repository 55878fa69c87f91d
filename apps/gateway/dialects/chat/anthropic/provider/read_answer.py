"""Anthropic Messages, provider side: reads an answer into canonical events. A plain answer is read as the stream it
would have been.

Unknown blocks and fields travel as opaque data: an answer with more than thinking, one text and a list of calls
(searches, citations, thinking between calls) keeps its original blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from apps.gateway.canonical.events import (
    Annotated,
    Event,
    Finished,
    OpaqueDelta,
    ReasoningDelta,
    Searched,
    Started,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
)
from apps.gateway.canonical.hosted_tools import CODE_EXECUTION
from apps.gateway.dialects.chat.anthropic.wire import (
    CALLER,
    CITATION_LOCATIONS,
    COUNTS,
    FINISH_REASONS,
    NAME,
    SIGNATURE_FORMAT,
    STOP_DETAILS,
    encode,
    failed,
    new_id,
    read_usage,
)
from apps.gateway.dialects.reading.answers import stream_reader, truncated_answer, unreadable_answer
from apps.gateway.dialects.reading.fields import Record, is_empty_arguments
from apps.kernel.usage import Usage

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
    """State of the blocks of an answer that were read so far."""

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
            self._add_own({"start": wire}, events)
        self._last = kind

    def read_delta(self, index: int, delta: Any, events: list[Event]) -> None:
        """Add the events of a delta."""
        block = self._open.get(index)
        if block is None or not isinstance(delta, dict):
            return
        kind = _text(delta.get("type"))
        if kind == "text_delta" and block.kind == "text":
            self._add_text(block, delta.get("text"), events)
        elif kind in {"thinking_delta", "signature_delta"} and block.kind == "thinking":
            self._think(block, delta, events)
        elif kind == "input_json_delta" and block.kind == "tool_use":
            self._argue(block, delta.get("partial_json"), events)
        else:
            if kind == "citations_delta" and isinstance(citation := delta.get("citation"), dict):
                block.citations.append(citation)
            elif kind == "input_json_delta" and isinstance(piece := delta.get("partial_json"), str):
                block.pieces.append(piece)
            self._add_own({"delta": delta}, events)

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
            elif citation.get("type") in CITATION_LOCATIONS:
                events.append(Annotated(annotation=citation))
        whole = block.whole()
        if block.kind == "server_tool_use" and whole.get("name") == _SEARCH:
            query = whole["input"].get("query") if isinstance(whole.get("input"), dict) else None
            events.append(Searched(query=_text(query) or ""))
        self._content.append(whole)

    def close(self, events: list[Event]) -> None:
        """Add the last event: the original blocks, if the canonical model does not express all of them."""
        for index in sorted(self._open):
            self.end(index, events)
        if not _is_ordinary(self._content):
            events.append(OpaqueDelta(dialect=NAME, data={"content": self._content}))

    def _begin_text(self, block: _Block, events: list[Event]) -> None:
        wire = block.start
        cited = wire.get("citations")
        block.citations = [one for one in cited if isinstance(one, dict)] if isinstance(cited, list) else []
        if self._last == "text" or not wire.keys() <= _FIELDS["text"]:
            self._add_own({"start": {**wire, "text": ""}}, events)
        self._add_text(block, wire.get("text"), events)

    def _add_text(self, block: _Block, text: Any, events: list[Event]) -> None:
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
        # The caller, a program at the provider or the model, comes back with the call.
        caller = wire.get(CALLER)
        extra = {CALLER: caller} if isinstance(caller, dict) else None
        events.append(ToolCallStarted(index=block.number, id=call_id, name=name, extra=extra))
        written = bytes(arguments).decode() if arguments is not None else encode(wire.get("input") or {}).decode()
        if written != "{}" and not is_empty_arguments(written):
            self._argue(block, written, events)

    def _argue(self, block: _Block, piece: Any, events: list[Event]) -> None:
        if isinstance(piece, str) and piece:
            block.pieces.append(piece)
            events.append(ToolCallDelta(index=block.number, arguments=piece))

    def _add_own(self, data: Record, events: list[Event]) -> None:
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


_MESSAGE_FIELDS = frozenset({"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"})
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def read_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer; one that cannot be read, or holds an error, ends with `Failed`."""
    message = _parsed(body)
    if message is None or message.get("type") == "error" or not isinstance(message.get("content"), list):
        yield (
            failed(message)
            if message and "error" in message
            else unreadable_answer("The provider sent an answer without content")
        )
        return
    answer = _Answer()
    # The usage comes at the end, as in a stream: counts that come before all text count as preliminary.
    events = answer.begin({name: value for name, value in message.items() if name != "usage"})
    for index, (block, raw) in enumerate(zip(message["content"], _raw_blocks(body), strict=True)):
        answer.blocks.begin(index, block, events, raw.get("input"))
        answer.blocks.end(index, events)
    answer.read_message_delta(message, message, events)
    yield from events
    yield from answer.end()


def _raw_blocks(body: bytes) -> list[dict[str, msgspec.Raw]]:
    """Return the blocks of a message by field, each as the bytes it was: arguments stay the text the model wrote."""
    return [
        _read_fields(raw) if raw.startswith(b"{") else {}
        for raw in map(bytes, msgspec.json.decode(_read_fields(body)["content"], type=list[msgspec.Raw]))
    ]


def _parsed(data: bytes) -> Record | None:
    """Return the object in a frame or a body, None when it holds no such thing."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


class _Answer:
    """State of the answer that was read so far."""

    def __init__(self) -> None:
        self.over = self.failed = False
        self.blocks = BlockReader()
        self._usage: Record = {}
        self._begun_counting = False
        self._known: Record = {}
        self._begun = False
        # The names of the blocks that the message began with, and which that stream are among them.
        self._given: set[str] = set()
        self._repeated: set[int] = set()
        self._stop: str | None = None
        self._explanation: str | None = None
        # Whether the counts of the beginning are those of a whole message, and no others have come since.
        self._counted_whole = False

    def cut(self) -> list[Event]:
        """Return the failure of an answer that breaks off."""
        return [truncated_answer()]

    def read(self, frame: bytes) -> list[Event]:
        """Return the events of one of the provider's events; kinds that are not known say nothing."""
        wire = _parsed(frame)
        if wire is None:
            return self._fail(unreadable_answer("The provider sent invalid JSON"))
        kind = wire.get("type")
        events: list[Event] = []
        if kind == "message_start":
            message = wire.get("message")
            if not isinstance(message, dict) or self._begun:
                return []
            events = self.begin(message)
            self._read_given(message, frame, events)
            return events
        if kind == "error" or (kind is None and "error" in wire):
            return self._fail(failed(wire))
        if not self._begun:
            return [] if kind == "ping" else self._fail(unreadable_answer("The provider's answer has no beginning"))
        if kind in ("content_block_start", "content_block_delta", "content_block_stop"):
            self._read_block(kind, wire, events)
        elif kind == "message_delta":
            delta = wire.get("delta")
            around = {name: value for name, value in wire.items() if name not in {"type", "delta"}}
            self.read_message_delta({**around, **(delta if isinstance(delta, dict) else {})}, wire, events)
        elif kind == "message_stop":
            events.extend(self.end())
        return events

    def _read_block(self, kind: str, wire: Record, events: list[Event]) -> None:
        """Add the events of a block; of one that the message began with there is nothing to add."""
        index = _index(wire)
        if kind == "content_block_start":
            self._repeated.discard(index)
            if _name_of(wire.get("content_block")) in self._given:
                self._repeated.add(index)
        if index in self._repeated:
            return
        if kind == "content_block_start":
            self.blocks.begin(index, wire.get("content_block"), events)
        elif kind == "content_block_delta":
            self.blocks.read_delta(index, wire.get("delta"), events)
        else:
            self.blocks.end(index, events)

    def begin(self, message: Record) -> list[Event]:
        """Announce the answer."""
        self._begun = True
        name, model = message.get("id"), message.get("model")
        self._known = _beyond(message)
        events: list[Event] = [
            Started(
                id=name if isinstance(name, str) else "",
                model=model if isinstance(model, str) else "",
                extra={NAME: dict(self._known)} if self._known else {},
            )
        ]
        self._count(message.get("usage"), events)
        if isinstance(stop := message.get("stop_reason"), str):
            # The whole message has come at once.
            self._stop, self._counted_whole = stop, True
        return events

    def _read_given(self, message: Record, frame: bytes, events: list[Event]) -> None:
        """Take in what a message begins with: where a tool was called by a program, that is the whole of it."""
        content = message.get("content")
        if not isinstance(content, list) or not content:
            return
        self._given = {name for block in content if (name := _name_of(block))}
        raw = _raw_blocks(bytes(_read_fields(frame)["message"]))
        for index, block in enumerate(content):
            self.blocks.begin(index, block, events, raw[index].get("input"))
            self.blocks.end(index, events)

    def read_message_delta(self, fields: Record, counted: Record, events: list[Event]) -> None:
        """Read the end of a message: the stop reason, the usage, and other fields."""
        stop, sequence = fields.get("stop_reason"), fields.get("stop_sequence")
        if isinstance(stop, str):
            self._stop = stop
        if isinstance(sequence, str):
            events.append(OpaqueDelta(dialect=NAME, data={"stop_sequence": sequence}, of="choice"))
        self._explanation = _explanation_of(fields.get(STOP_DETAILS)) or self._explanation
        self._read_reply_fields(_beyond(fields), events)
        self._count(counted.get("usage"), events)

    def _read_reply_fields(self, fields: Record, events: list[Event]) -> None:
        news = {name: value for name, value in fields.items() if self._known.get(name) != value}
        if news:
            self._known |= news
            events.append(OpaqueDelta(dialect=NAME, data=news, of="reply"))

    def _count(self, reported: Any, events: list[Event]) -> None:
        """Report the counts so far: later ones replace earlier ones field by field; omitted fields keep their value."""
        if not isinstance(reported, dict):
            return
        before = self._usage
        self._usage = before | {
            name: value for name, value in reported.items() if value is not None or name not in before
        }
        rest = {name: value for name, value in self._usage.items() if name not in COUNTS and value is not None}
        if rest:
            self._read_reply_fields({"usage": rest}, events)
        # An answer of as many tokens as were counted at its beginning is counted again with the same number.
        again = self._begun_counting and reported.get("output_tokens") is not None
        self._begun_counting = True
        if (again or self._usage != before) and (usage := self._used()):
            self._counted_whole = False
            events.append(UsageReported(usage=usage))

    def _used(self) -> Usage | None:
        """Return the counts so far; an answer that names a container has had code run."""
        usage = read_usage(self._usage)
        if usage is None or not isinstance(self._known.get("container"), dict):
            return usage
        return replace(usage, tool_calls={**(usage.tool_calls or {}), CODE_EXECUTION: 1})

    def end(self) -> list[Event]:
        """Return the last events; an answer without a stop reason was cut off."""
        self.over = True
        if self._stop is None:
            return self._fail(truncated_answer())
        events: list[Event] = []
        self.blocks.close(events)
        reason = FINISH_REASONS.get(self._stop, "stop")
        if reason == "stop" and self.blocks.calls:
            reason = "tool_calls"
        if self._counted_whole and (usage := self._used()):
            events.append(UsageReported(usage=usage))
        explanation = self._explanation if reason == "content_filter" else None
        events.append(Finished(reason=reason, native=self._stop, explanation=explanation))
        return events

    def _fail(self, event: Event) -> list[Event]:
        self.over = self.failed = True
        return [event]


read_events = stream_reader(_Answer)


def _name_of(block: Any) -> str:
    """Return what no other block is called: a call's id, or the one that a result is of; empty for any other block."""
    for field in ("id", "tool_use_id"):
        if isinstance(block, dict) and isinstance(name := block.get(field), str) and name:
            return f"{block.get('type')} {name}"
    return ""


def _explanation_of(details: Any) -> str | None:
    """Return why an answer was refused: the provider's words, else the category of what it refuses."""
    if not isinstance(details, dict):
        return None
    words, category = details.get("explanation"), details.get("category")
    if isinstance(words, str) and words.strip():
        return words
    return f"The model's provider refused to answer: {category}" if isinstance(category, str) and category else None


def _index(wire: Record) -> int:
    index = wire.get("index")
    return index if isinstance(index, int) else 0


def _beyond(message: Record) -> Record:
    """Return the fields of a message that have no canonical counterpart."""
    return {name: value for name, value in message.items() if name not in _MESSAGE_FIELDS and value is not None}

"""Bedrock Converse, provider side: reads an answer into canonical events. A plain answer is read as the stream it
would have been.

The counts come after the end.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from apps.gateway.canonical.chat import served_tier
from apps.gateway.canonical.events import (
    Annotated,
    Event,
    Finished,
    ImageMade,
    OpaqueDelta,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
)
from apps.gateway.dialects.chat.anthropic.wire import SIGNATURE_FORMAT
from apps.gateway.dialects.chat.bedrock.wire import (
    FAILURE_WORDS,
    FINISH_REASONS,
    NAME,
    encode,
    exception,
    failed,
    find_failure,
    read_usage,
)
from apps.gateway.dialects.reading.answers import (
    read_answer,
    stream_reader,
    truncated_answer,
    unreadable_answer,
)
from apps.gateway.dialects.reading.fields import Record

# Bedrock's word for where in a document: Anthropic's word, and what its bounds are called.
_PLACES: Final = {
    "documentChar": ("char_location", "char_index"),
    "documentPage": ("page_location", "page_number"),
    "documentChunk": ("content_block_location", "block_index"),
    "searchResultLocation": ("search_result_location", "block_index"),
}


def read_citation(citation: Record) -> Record | None:
    """Return the citation of a place in a document or search result; None for that of a page of the web, or of
    nothing."""
    location = citation.get("location")
    for name, (kind, bound) in _PLACES.items():
        place = location.get(name) if isinstance(location, dict) else None
        if not isinstance(place, dict):
            continue
        bounds = {f"start_{bound}": _number(place.get("start")), f"end_{bound}": _number(place.get("end"))}
        title, cited = _text(citation.get("title")), {"type": kind, "cited_text": _cited_text(citation)}
        if kind == "search_result_location":
            at, source = _number(place.get("searchResultIndex")), _text(citation.get("source")) or ""
            return {**cited, "search_result_index": at, "source": source, "title": title, **bounds}
        return {**cited, "document_index": _number(place.get("documentIndex")), "document_title": title, **bounds}
    return None


def write_cited_text(text: str, citations: Any) -> Record | None:
    """Return an earlier answer's text with the citations of documents that came with it, in Anthropic's words; None
    where there are none."""
    written = map(write_citation, citations if isinstance(citations, list) else ())
    if not (cited := [citation for citation in written if citation is not None]):
        return None
    return {"citationsContent": {"content": [{"text": text}], "citations": cited}}


def write_citation(note: Any) -> Record | None:
    """Return a citation of a document as Bedrock has it; None for that of a page of the web, which is not taken
    back."""
    kind = note.get("type") if isinstance(note, dict) else None
    for name, (word, bound) in _PLACES.items():
        if kind != word:
            continue
        place = {"start": _number(note.get(f"start_{bound}")), "end": _number(note.get(f"end_{bound}"))}
        cited: Record = {"sourceContent": [{"text": text}]} if (text := _text(note.get("cited_text"))) else {}
        if word == "search_result_location":
            place, title = {"searchResultIndex": _number(note.get("search_result_index")), **place}, note.get("title")
            cited |= {"source": source} if (source := _text(note.get("source"))) else {}
        else:
            place, title = {"documentIndex": _number(note.get("document_index")), **place}, note.get("document_title")
        named: Record = {"title": title} if _text(title) else {}
        return {**named, **cited, "location": {name: place}}
    return None


def _cited_text(citation: Record) -> str:
    pieces = citation.get("sourceContent")
    texts = [piece.get("text") for piece in (pieces if isinstance(pieces, list) else ()) if isinstance(piece, dict)]
    return "".join(text for text in texts if isinstance(text, str))


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


_SERVER_TOOL = "server_tool_use"


class BlockReader:
    """State of the blocks of an answer that were read so far."""

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

    def read_delta(self, index: int, delta: Any, events: list[Event]) -> None:
        """Add the events of a delta."""
        if not isinstance(delta, dict):
            return
        block = self._block(index)
        use, image = delta.get("toolUse"), delta.get("image")
        if isinstance(text := delta.get("text"), str):
            self._add_text(text, events)
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
            self.read_delta(index, {"toolUse": {"input": given.decode("utf-8", "replace")}}, events)
        elif isinstance(thought, dict):
            text = thought.get("reasoningText")
            for name, value in (text if isinstance(text, dict) else thought).items():
                self.read_delta(index, {"reasoningContent": {name: value}}, events)
        elif isinstance(image, dict):
            self.begin(index, {"image": image}, events)
            self.read_delta(index, {"image": image}, events)
        elif isinstance(cited, dict):
            self._whole_citations(index, cited, events)
        elif isinstance(wire.get("text"), str):
            self.read_delta(index, wire, events)
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
        """Add the last event."""
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

    def _add_text(self, text: str, events: list[Event]) -> None:
        if text:
            self._written += len(text)
            events.append(TextDelta(text=text))

    def _think(self, block: _Block, thought: Record, events: list[Event]) -> None:
        """Add thinking. Only Claude models sign it, with the same signatures on every cloud; unsigned thinking is not
        taken back."""
        text, signature = _word(thought.get("text")), _word(thought.get("signature"))
        redacted = _word(thought.get("redactedContent"))
        data = inner_text(redacted) if redacted else None
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
        content, citations = cited.get("content"), cited.get("citations")
        for part in content if isinstance(content, list) else ():
            self.read_delta(index, part, events)
        for citation in citations if isinstance(citations, list) else ():
            self.read_delta(index, {"citation": citation}, events)


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


def inner_text(encoded: str) -> str | None:
    """Return the text that base64 holds: redacted thinking is text of its maker's, which its other formats have bare.
    None for bytes that are not text, which are not sent back."""
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


# Metadata of an answer, beside the fields that are read here.
_AROUND = ("metrics", "trace", "performanceConfig", "serviceTier", "additionalModelResponseFields")


class _Use(msgspec.Struct):
    input: msgspec.Raw = msgspec.Raw(b"")


class _RawBlock(msgspec.Struct):
    toolUse: _Use | None = None  # noqa: N815 - as it is on the wire


class _RawMessage(msgspec.Struct):
    content: list[_RawBlock]


class _RawOutput(msgspec.Struct):
    message: _RawMessage


class _RawAnswer(msgspec.Struct):
    output: _RawOutput


_read_raw = msgspec.json.Decoder(_RawAnswer).decode


def read_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer; one that cannot be read, or holds an error, ends with `Failed`."""
    try:
        wire = read_answer(body)
    except ValueError:
        yield unreadable_answer("The provider sent invalid JSON")
        return
    content = _content_of(wire)
    if content is None:
        yield find_failure(wire) or unreadable_answer("The provider sent an answer without content")
        return
    answer = _Answer()
    answer.stop(wire.get("stopReason"))
    if answer.useless:
        yield answer.useless
        return
    events: list[Event] = [Started()]
    arguments = _arguments(body, len(content))
    for index, block in enumerate(content):
        if isinstance(block, dict):
            answer.blocks.whole(index, block, arguments[index], events)
    answer.count(wire, events)
    yield from events
    yield from answer.end()


def _content_of(wire: Any) -> list[Any] | None:
    for name in ("output", "message", "content"):
        wire = wire.get(name) if isinstance(wire, dict) else None
    return wire if isinstance(wire, list) else None


def _arguments(body: bytes, count: int) -> list[bytes | None]:
    """Return the arguments of each block's call as the bytes they were, None where there is none."""
    try:
        blocks = _read_raw(body).output.message.content
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return [None] * count
    found = [bytes(block.toolUse.input) if block.toolUse else b"" for block in blocks]
    return [raw if raw.startswith(b"{") else None for raw in found]


class _Answer:
    """State of the answer that was read so far."""

    def __init__(self) -> None:
        self.over = self.failed = False
        self.useless: Event | None = None
        self.blocks = BlockReader()
        self._begun = False
        self._word: str | None = None
        self._around: Record = {}

    def read(self, frame: bytes) -> list[Event]:
        """Return the events of one of the provider's events; kinds that are not known say nothing."""
        try:
            wire = read_answer(frame)
        except ValueError:
            return self._fail(unreadable_answer("The provider sent invalid JSON"))
        kind, content = next(iter(wire.items()), ("", None)) if isinstance(wire, dict) else ("", None)
        if kind == "exception":
            return self._fail(exception(content))
        events: list[Event] = []
        if not isinstance(content, dict):
            return events
        if kind in {"messageStart", "contentBlockStart", "contentBlockDelta"} and not self._begun:
            self._begun = True
            events.append(Started())
        if kind == "contentBlockStart":
            self.blocks.begin(_index(content), content.get("start"), events)
        elif kind == "contentBlockDelta":
            self.blocks.read_delta(_index(content), content.get("delta"), events)
        elif kind == "contentBlockStop":
            self.blocks.end(_index(content), events)
        elif kind == "messageStop":
            self.stop(content.get("stopReason"))
            self._read_metadata(content)
            if self.useless:
                return self._fail(self.useless)
        elif kind == "metadata":
            self.count(content, events)
            if self._word is not None:
                events.extend(self.end())
        return events

    def stop(self, word: Any) -> None:
        """Take in why the model stopped."""
        if isinstance(word, str) and word:
            self._word = word
            if word in FAILURE_WORDS:
                self.useless = failed(f"The provider ended its answer with `{word}`", name=word)

    def count(self, content: Record, events: list[Event]) -> None:
        """Report the counts, and keep what else is said about the answer."""
        if usage := read_usage(content.get("usage")):
            tier = content.get("serviceTier")
            name = served_tier(tier.get("type")) if isinstance(tier, dict) else ""
            events.append(UsageReported(usage=msgspec.structs.replace(usage, service_tier=name) if name else usage))
        self._read_metadata(content)

    def cut(self) -> list[Event]:
        """Return the last events of a stream without the counts, which come last."""
        return self.end()

    def end(self) -> list[Event]:
        """Return the last events; an answer without a stop reason was cut off."""
        self.over = True
        if self._word is None:
            return self._fail(truncated_answer())
        events: list[Event] = []
        self.blocks.close(events)
        if self._around:
            events.append(OpaqueDelta(dialect=NAME, data=self._around, of="reply"))
        reason = FINISH_REASONS.get(self._word, "stop")
        if self.blocks.calls and reason == "stop":
            reason = "tool_calls"
        elif reason == "tool_calls" and not self.blocks.calls:
            # The provider made the call itself.
            reason = "stop"
        events.append(Finished(reason=reason, native=self._word))
        return events

    def _read_metadata(self, content: Record) -> None:
        self._around |= {name: content[name] for name in _AROUND if content.get(name) not in (None, {}, [])}

    def _fail(self, event: Event) -> list[Event]:
        self.over = self.failed = True
        return [event]


read_events = stream_reader(_Answer)


def _index(content: Record) -> int:
    index = content.get("contentBlockIndex")
    return index if isinstance(index, int) else 0

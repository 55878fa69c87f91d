"""Anthropic Messages, client side: writes a whole reply or a stream of events, with `stop_reason` and usage.

Answers have the shapes that Anthropic's own clients accept. Other fields of a provider of this format are put back at
their place. Blocks in a stream come one after the other: deltas of a later block wait. Other formats write several
calls at once; a call is over when its arguments are a whole JSON value and another block waits, or at the answer's end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import msgspec

from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.events import (
    Annotated,
    Choice,
    Event,
    Failed,
    Finished,
    ImageMade,
    OpaqueDelta,
    ReasoningDelta,
    RefusalDelta,
    Reply,
    Started,
    Summary,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
    Waiting,
)
from apps.gateway.dialects.chat.anthropic.provider.write_messages import split_data_url
from apps.gateway.dialects.chat.anthropic.wire import (
    CALLER,
    CITATION_LOCATIONS,
    FINISH_REASONS,
    NAME,
    SIGNATURE_FORMAT,
    STOP_DETAILS,
    STOP_REASONS,
    encode,
    new_id,
    read_input,
    write_error_object,
    write_usage,
)
from apps.gateway.dialects.reading.fields import Record
from apps.kernel.usage import Usage


def sse(event: Record) -> bytes:
    """Return an event, framed under its own type."""
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), encode(event))


# The delta of a text: to be filled with the block's index and the text as JSON.
_TEXT_DELTA = sse(
    {
        "type": "content_block_delta",
        "index": msgspec.Raw(b"%d"),
        "delta": {"type": "text_delta", "text": msgspec.Raw(b"%b")},
    }
)


def write_thinking(block: ReasoningDelta) -> Record:
    """Return a block of thinking. One signed by another maker says whose signature it is, for when it comes back."""
    if block.data is not None:
        wire: Record = {"type": "redacted_thinking", "data": block.data}
    else:
        wire = {"type": "thinking", "thinking": block.text, "signature": block.signature or ""}
    if block.format not in (None, SIGNATURE_FORMAT):
        wire["format"] = block.format
    if block.id is not None:
        wire["id"] = block.id
    return wire


def write_call(call_id: str, name: str) -> Record:
    """Return a call without its arguments."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}}


def write_image(url: str) -> Record:
    """Return an image that the model made, in the form in which this format is shown images."""
    if not url.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    media_type, data = split_data_url(url)
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def write_citation(note: Record, text: str) -> Record:
    """Return a citation: of a document as it is, of a page of the web for a place in `text`, which is all that was said
    before it.

    The index of a page is empty: only Anthropic has one, and takes the citation back with it.
    """
    if note.get("type") in CITATION_LOCATIONS:
        return note
    cited = note.get("url_citation")
    page: Record = cited if isinstance(cited, dict) else {}
    start, end = page.get("start_index"), page.get("end_index")
    return {
        "type": "web_search_result_location",
        "url": page.get("url", ""),
        "title": page.get("title"),
        "cited_text": text[start:end] if isinstance(start, int) and isinstance(end, int) else "",
        "encrypted_index": "",
    }


class Blocks:
    """The blocks that are not over yet: the first of them is open. `write` turns each event of theirs into bytes."""

    def __init__(self, write: Callable[[Record], bytes] = sse) -> None:
        self._write = write
        self._waiting: deque[_Block] = deque()
        self._calls: dict[int, _Block] = {}
        self._index = 0

    def write_text(self, text: str) -> bytes:
        """Return what more text becomes."""
        if not text:
            return b""
        if self._write is sse and len(self._waiting) == 1 and self._waiting[0].kind == "text":
            # Nearly all of a stream of this format.
            return _TEXT_DELTA % (self._index, encode(text))
        return self._on_text({"type": "text_delta", "text": text})

    def think(self, event: ReasoningDelta) -> bytes:
        """Return what more thinking becomes."""
        if event.data is not None:
            return self._add(_Block("", write_thinking(event)))
        last = self._last("thinking")
        piece = b""
        if last is None or last.number != event.block:
            empty = ReasoningDelta(format=event.format, id=event.id)
            last = _Block("thinking", write_thinking(empty), number=event.block)
            piece = self._add(last)
        if event.text:
            piece += self._write_delta(last, {"type": "thinking_delta", "thinking": event.text})
        if event.signature:
            piece += self._write_delta(last, {"type": "signature_delta", "signature": event.signature})
        return piece

    def call(self, number: int, call_id: str, name: str, extra: Record | None = None) -> bytes:
        """Return what the beginning of a call becomes."""
        caller = {CALLER: extra[CALLER]} if extra and CALLER in extra else {}
        block = self._calls[number] = _Block("tool_use", {**write_call(call_id, name), **caller})
        return self._add(block)

    def argue(self, number: int, arguments: str) -> bytes:
        """Return the delta for more of a call's arguments. Text after complete arguments is ignored."""
        block = self._calls.get(number)
        if block is None or block.over or not arguments:
            return b""
        block.arguments.append(arguments)
        return self._write_delta(block, {"type": "input_json_delta", "partial_json": arguments}) + self._advance()

    def cite(self, citation: Record) -> bytes:
        """Return what a citation becomes: one of the text that was just written."""
        return self._on_text({"type": "citations_delta", "citation": citation})

    def show(self, block: Record) -> bytes:
        """Return what the beginning of a block of any other kind becomes, or the whole of it."""
        return self._add(_Block("text" if block.get("type") == "text" else "", block))

    def write_delta(self, delta: Record) -> bytes:
        """Return what a delta of this very format becomes: one of the last block."""
        return self._write_delta(self._waiting[-1], delta) if self._waiting else b""

    def close(self) -> bytes:
        """Return the rest of all blocks."""
        pieces: list[bytes] = []
        while self._waiting:
            pieces.append(self._stop())
        return b"".join(pieces)

    def _on_text(self, delta: Record) -> bytes:
        """Return a delta of the last block if that is text, else of one that begins with it."""
        block, piece = self._last("text"), b""
        if block is None:
            block = _Block("text", {"type": "text", "text": ""})
            piece = self._add(block)
        return piece + self._write_delta(block, delta)

    def _last(self, kind: str) -> _Block | None:
        """Return the last block if it is of that kind."""
        return self._waiting[-1] if self._waiting and self._waiting[-1].kind == kind else None

    def _add(self, block: _Block) -> bytes:
        self._waiting.append(block)
        return self._start(block) if len(self._waiting) == 1 else self._advance()

    def _write_delta(self, block: _Block, delta: Record) -> bytes:
        """Return a delta of the open block; one of another block waits with it."""
        if block is not self._waiting[0]:
            block.deltas.append(delta)
            return b""
        return self._write({"type": "content_block_delta", "index": self._index, "delta": delta})

    def _start(self, block: _Block) -> bytes:
        """Return the beginning of a block and what has waited for it."""
        pieces = [self._write({"type": "content_block_start", "index": self._index, "content_block": block.start})]
        pieces += [self._write_delta(block, delta) for delta in block.deltas]
        return b"".join(pieces)

    def _advance(self) -> bytes:
        """Return the ends of blocks that are over, and the beginnings of those that waited for them."""
        pieces: list[bytes] = []
        while len(self._waiting) > 1 and self._waiting[0].is_whole():
            pieces.append(self._stop())
        return b"".join(pieces)

    def _stop(self) -> bytes:
        """Return the end of the open block, and the beginning of the next one."""
        self._waiting.popleft().over = True
        piece = self._write({"type": "content_block_stop", "index": self._index})
        self._index += 1
        return piece + self._start(self._waiting[0]) if self._waiting else piece


class _Block:
    """A block that is not over: what it begins with, and the deltas that wait until it is open."""

    __slots__ = ("arguments", "deltas", "kind", "number", "over", "start")

    def __init__(self, kind: str, start: Record, *, number: int = 0) -> None:
        self.kind = kind
        self.start = start
        self.number = number
        self.over = False
        self.arguments: list[str] = []
        self.deltas: list[Record] = []

    def is_whole(self) -> bool:
        """Return whether nothing more can come: any block but a call's is over as soon as another begins."""
        if self.kind != "tool_use":
            return True
        try:
            msgspec.json.decode("".join(self.arguments))
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return False
        return True


# Before the message there is no event that every client takes: a comment says nothing.
_SILENCE = b": ping\n\n"
_PING = sse({"type": "ping"})
# Fields of a message that a stream says at its end, inside the `delta`.
_IN_DELTA = ("container", STOP_DETAILS)


def write_reply(reply: Reply, summary: Summary, chat: Chat) -> bytes:
    """Return a whole answer: the first, where there are several."""
    choice = reply.choices[0] if reply.choices else Choice()
    extra = dict(reply.extra.get(NAME, {}))
    counted = extra.pop("usage", {})
    details = _stop_details(choice.explanation, choice.native_finish)
    return encode(
        {
            "id": f"msg_{reply.log_id}" if reply.log_id else reply.id or new_id("msg_"),
            "type": "message",
            "role": "assistant",
            "model": summary.metadata.get("used_model") or reply.model,
            "content": choice.extra.get(NAME, {}).get("content") or _content(choice, chat),
            "stop_reason": _stop_reason(choice.finish, choice.native_finish, refused=choice.refusal is not None),
            "stop_sequence": choice.stop_sequence or choice.choice_extra.get(NAME, {}).get("stop_sequence"),
            **details,
            "usage": {**write_usage(summary.usage), **counted},
            **extra,
        }
    )


def write_events(events: Iterable[Event], chat: Chat) -> Iterator[bytes]:
    """Yield a streamed answer. Its end waits for the summary, because usage travels with it; a failure ends it with an
    `error` event."""
    stream = _Stream(chat)
    for event in events:
        write = _WRITERS.get(type(event))
        if write is not None and event.choice == 0 and not stream.over and (piece := write(stream, event)):
            yield piece


def _content(choice: Choice, chat: Chat) -> list[Record]:
    """Return the blocks of an answer of which the canonical language says all."""
    blocks = [] if _hides_thinking(chat) else [write_thinking(block) for block in choice.reasoning]
    if choice.text:
        text: Record = {"type": "text", "text": choice.text}
        if choice.annotations:
            text["citations"] = [write_citation(note, choice.text) for note in choice.annotations]
        blocks.append(text)
    if choice.refusal:
        blocks.append({"type": "text", "text": choice.refusal})
    blocks += [write_image(url) for url in choice.images]
    blocks += [{**write_call(call.id, call.name), "input": read_input(call.arguments)} for call in choice.tool_calls]
    return blocks


def _hides_thinking(chat: Chat) -> bool:
    return chat.reasoning is not None and chat.reasoning.exclude is True


def _stop_reason(reason: str | None, native: str | None, *, refused: bool) -> str:
    """Return why the model stopped: the provider's own word where it is one of this format for the same."""
    if native in FINISH_REASONS and (FINISH_REASONS[native] == reason or native == "pause_turn"):
        return native
    if refused and reason == "stop":
        return "refusal"
    return STOP_REASONS[cast(Any, reason) or "stop"]


def _stop_details(explanation: str | None, native: str | None) -> Record:
    """Return the field that says why another format's provider refused to answer; this format's own has said it."""
    if explanation is None or native in FINISH_REASONS:
        return {}
    return {STOP_DETAILS: {"type": "refusal", "category": None, "explanation": explanation}}


class _Stream:
    """State of a stream that is being written."""

    def __init__(self, chat: Chat) -> None:
        self.over = False
        self._silent = _hides_thinking(chat)
        self._blocks = Blocks()
        self._start: Started | None = Started()
        self._end: Finished | None = None
        self._usage: Usage | None = None
        self._sequence: str | None = None
        self._texts: list[str] = []
        self._late: Record = {}
        self._refused = self._cites_itself = False

    def _begun(self, piece: bytes) -> bytes:
        """Return a piece, after the message's start where this is its first."""
        if not piece or self._start is None:
            return piece
        start, self._start = self._start, None
        usage = self._usage or Usage(input=start.prompt_estimate)
        extra = dict(start.extra.get(NAME, {}))
        message: Record = {
            "id": f"msg_{start.log_id}" if start.log_id else start.id or new_id("msg_"),
            "type": "message",
            "role": "assistant",
            "model": start.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**write_usage(usage), "output_tokens": 0, **extra.pop("usage", {})},
            **extra,
        }
        return sse({"type": "message_start", "message": message}) + piece

    def _started(self, event: Started) -> bytes:
        if self._start is not None:
            self._start = event
        return b""

    def _counted(self, event: UsageReported) -> bytes:
        self._usage = event.usage
        return b""

    def _text(self, event: TextDelta) -> bytes:
        self._texts.append(event.text)
        piece = self._blocks.write_text(event.text)
        return piece if self._start is None else self._begun(piece)

    def _refusal(self, event: RefusalDelta) -> bytes:
        self._refused = True
        return self._begun(self._blocks.write_text(event.text))

    def _reasoning(self, event: ReasoningDelta) -> bytes:
        return b"" if self._silent else self._begun(self._blocks.think(event))

    def _call_started(self, event: ToolCallStarted) -> bytes:
        return self._begun(self._blocks.call(event.index, event.id, event.name, event.extra))

    def _call_delta(self, event: ToolCallDelta) -> bytes:
        return self._begun(self._blocks.argue(event.index, event.arguments))

    def _image(self, event: ImageMade) -> bytes:
        return self._begun(self._blocks.show(write_image(event.url)))

    def _annotated(self, event: Annotated) -> bytes:
        """Return a citation that another format brought; its own were written where they stood."""
        if self._cites_itself:
            return b""
        return self._begun(self._blocks.cite(write_citation(event.annotation, "".join(self._texts))))

    def _opaque(self, event: OpaqueDelta) -> bytes:
        if event.dialect != NAME:
            return b""
        if event.of == "reply":
            self._write_reply_fields(event.data)
        elif event.of == "choice":
            self._sequence = event.data.get("stop_sequence", self._sequence)
        elif event.of == "stream" and isinstance(delta := event.data.get("delta"), dict):
            self._cites_itself = self._cites_itself or delta.get("type") == "citations_delta"
            return self._begun(self._blocks.write_delta(delta))
        elif event.of == "stream" and isinstance(block := event.data.get("start"), dict):
            self._cites_itself = self._cites_itself or bool(block.get("citations"))
            return self._begun(self._blocks.show(block))
        return b""

    def _write_reply_fields(self, news: Record) -> None:
        """Say what is new of the whole reply at its start, or else at its end."""
        if self._start is None:
            self._late |= news
        else:
            known = self._start.extra.get(NAME, {})
            self._start.extra = {**self._start.extra, NAME: {**known, **news}}

    def _finished(self, event: Finished) -> bytes:
        self._end = event
        return b""

    def _summary(self, event: Summary) -> bytes:
        """Return the ends of the blocks and of the message."""
        self.over = True
        end = self._end or Finished(reason="stop")
        late = self._late
        counted = {**write_usage(event.usage), **late.pop("usage", {})}
        delta: Record = {
            "stop_reason": _stop_reason(end.reason, end.native, refused=self._refused),
            "stop_sequence": end.stop_sequence or self._sequence,
            **_stop_details(end.explanation, end.native),
            **{name: late.pop(name) for name in _IN_DELTA if name in late},
        }
        last = sse({"type": "message_delta", "delta": delta, "usage": counted, **late})
        return self._begun(self._blocks.close() + last) + sse({"type": "message_stop"})

    def _waiting(self, event: Waiting) -> bytes:
        return _PING if self._start is None else _SILENCE

    def _failed(self, event: Failed) -> bytes:
        self.over = True
        return sse({"type": "error", "error": write_error_object(event.error)})


_WRITERS = cast(
    dict[type[Event], Callable[[_Stream, Event], bytes]],
    {
        Started: _Stream._started,
        UsageReported: _Stream._counted,
        TextDelta: _Stream._text,
        RefusalDelta: _Stream._refusal,
        ReasoningDelta: _Stream._reasoning,
        ToolCallStarted: _Stream._call_started,
        ToolCallDelta: _Stream._call_delta,
        ImageMade: _Stream._image,
        Annotated: _Stream._annotated,
        OpaqueDelta: _Stream._opaque,
        Finished: _Stream._finished,
        Summary: _Stream._summary,
        Waiting: _Stream._waiting,
        Failed: _Stream._failed,
    },
)

"""Anthropic Messages, client side: writes a whole reply or a stream of events, with `stop_reason` and usage.

Knows the shapes that Anthropic's own clients accept; blocks in a stream are put in order in `write_blocks.py`. Must
never know where an answer came from: what another provider of this format said beyond it is put back where it stood.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

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
from apps.gateway.dialects.chat.anthropic.client.write_blocks import (
    Blocks,
    Record,
    sse,
    write_call,
    write_citation,
    write_image,
    write_thinking,
)
from apps.gateway.dialects.chat.anthropic.shared.failures import write_error_object
from apps.gateway.dialects.chat.anthropic.shared.usage import write_usage
from apps.gateway.dialects.chat.anthropic.shared.wire import (
    FINISH_REASONS,
    NAME,
    STOP_DETAILS,
    STOP_REASONS,
    encode,
    new_id,
    read_input,
)
from apps.kernel.usage import Usage

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
        if not stream.over and (piece := stream.write(event)):
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
    """What has been written of a stream."""

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

    def write(self, event: Event) -> bytes:
        """Return the bytes that an event becomes; none for what waits or says nothing here."""
        write = _WRITERS.get(type(event))
        return write(self, event) if write is not None and event.choice == 0 else b""

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

    def _said(self, event: TextDelta) -> bytes:
        self._texts.append(event.text)
        return self._begun(self._blocks.say(event.text))

    def _refusal(self, event: RefusalDelta) -> bytes:
        self._refused = True
        return self._begun(self._blocks.say(event.text))

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
            self._learn(event.data)
        elif event.of == "choice":
            self._sequence = event.data.get("stop_sequence", self._sequence)
        elif event.of == "stream" and isinstance(delta := event.data.get("delta"), dict):
            self._cites_itself = self._cites_itself or delta.get("type") == "citations_delta"
            return self._begun(self._blocks.go_on(delta))
        elif event.of == "stream" and isinstance(block := event.data.get("start"), dict):
            self._cites_itself = self._cites_itself or bool(block.get("citations"))
            return self._begun(self._blocks.show(block))
        return b""

    def _learn(self, news: Record) -> None:
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
        TextDelta: _Stream._said,
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

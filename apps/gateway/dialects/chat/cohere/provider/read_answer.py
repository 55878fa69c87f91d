"""Cohere Chat v2, provider side: reads an answer into canonical events.

Knows the events of a stream and the frame of a plain answer. Must never know a model by name: answers do not tell it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from apps.gateway.canonical.events import Event, Finished, OpaqueDelta, Started, UsageReported, Waiting
from apps.gateway.dialects import Failure
from apps.gateway.dialects.chat.cohere.provider.failures import find_failure
from apps.gateway.dialects.chat.cohere.provider.read_message import MessageReader
from apps.gateway.dialects.chat.cohere.shared.usage import read_usage
from apps.gateway.dialects.chat.cohere.shared.wire import FAILURE_WORDS, FINISH_REASONS, NAME, Record
from apps.gateway.dialects.chat.openai.shared.failures import failed as openai_failed
from apps.gateway.dialects.reading.answer_errors import (
    MAX_ERROR_LENGTH,
    drain_frames,
    failure_event,
    read_answer,
    truncated_answer,
    unreadable_answer,
)

_KNOWN = frozenset({"id", "finish_reason", "message", "logprobs"})
_END = b"[DONE]"


def read_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer; one that cannot be read, or holds an error, ends with `Failed`."""
    answer = _Answer()
    yield from answer.read_whole(body)


def read_events(frames: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of a streamed answer; an empty frame is silence and becomes `Waiting`.

    An answer that breaks off before `message-end`, holds an error or cannot be read ends with `Failed`.
    """
    answer = _Answer()
    frames = iter(frames)
    for frame in frames:
        if not frame:
            yield Waiting()
            continue
        if frame.strip() == _END:
            break
        yield from answer.read(frame)
        if answer.over:
            drain_frames(frames)
            return
    yield truncated_answer()


class _Answer:
    """What has been read so far."""

    def __init__(self) -> None:
        self.over = False
        self._started = False
        self._message = MessageReader()

    def read_whole(self, data: bytes) -> list[Event]:
        """Return the events of a plain answer."""
        try:
            answer = read_answer(data)
        except ValueError:
            return [unreadable_answer("The provider sent what is not JSON")]
        message = answer.get("message") if isinstance(answer, dict) else None
        if not isinstance(message, dict):
            failure = find_failure(answer)
            if failure:
                return [openai_failed(answer, failure)]
            return [unreadable_answer("The provider sent an answer without a message")]
        events: list[Event] = []
        self._start(answer, events)
        if isinstance(items := answer.get("logprobs"), list):
            self._message.read_logprobs(items, events)
        self._message.read_whole(message, events)
        rest = {name: value for name, value in answer.items() if name not in _KNOWN and value is not None}
        return self._end(answer, rest, events)

    def read(self, data: bytes) -> list[Event]:
        """Return the events of a piece of a stream."""
        try:
            piece = read_answer(data)
        except ValueError:
            return self._over([unreadable_answer("The provider sent what is not JSON")])
        if not isinstance(piece, dict):
            return self._over([unreadable_answer("The provider sent a stream of what are no events")])
        kind = piece.get("type")
        if (not isinstance(kind, str) or kind == "error") and (failure := find_failure(piece)):
            return self._over([openai_failed(piece, failure)])
        events: list[Event] = []
        self._start(piece, events)
        delta = _inside(piece, "delta")
        if kind == "message-end":
            rest = _stated_usage(delta)
            return self._over(self._end(delta, rest, events))
        self._read_delta(str(kind), _inside(delta, "message"), piece, events)
        return events

    def _read_delta(self, kind: str, message: Record, piece: Record, events: list[Event]) -> None:
        """Add what an event in the middle of a stream says; one of a kind not known here says nothing."""
        place = piece.get("index")
        if kind in ("content-start", "content-delta"):
            if (item := piece.get("logprobs")) is not None:
                self._message.read_logprobs(item if isinstance(item, list) else [item], events)
            self._message.read_content(message.get("content"), place, events)
        elif kind == "tool-plan-delta":
            self._message.read_plan(message.get("tool_plan"), events)
        elif kind == "tool-call-start":
            self._message.start_call(message.get("tool_calls"), place, events)
        elif kind == "tool-call-delta":
            self._message.go_on_with(message.get("tool_calls"), place, events)
        elif kind == "citation-start":
            self._message.read_citation(message.get("citations"), events)

    def _start(self, answer: Record, events: list[Event]) -> None:
        if not self._started:
            self._started = True
            name = answer.get("id")
            events.append(Started(id=name if isinstance(name, str) else ""))

    def _end(self, answer: Record, rest: Record, events: list[Event]) -> list[Event]:
        """Add the end of the answer: counts, and why it stopped."""
        word, words = answer.get("finish_reason"), answer.get("error")
        native = word if isinstance(word, str) and word else None
        if native in FAILURE_WORDS:
            message = words if isinstance(words, str) and words else f"The provider ended its answer with `{native}`"
            return [
                failure_event(Failure(message=message[:MAX_ERROR_LENGTH], code="upstream_error"), FAILURE_WORDS[native])
            ]
        self._message.end(events)
        if rest:
            events.append(OpaqueDelta(dialect=NAME, data=rest, of="reply"))
        if usage := read_usage(answer.get("usage")):
            events.append(UsageReported(usage=usage))
        reason = FINISH_REASONS.get(native or "", "stop")
        if reason == "stop" and self._message.has_calls:
            reason = "tool_calls"
        events.append(Finished(reason=reason, native=native))
        return events

    def _over(self, events: list[Event]) -> list[Event]:
        self.over = True
        return events


def _stated_usage(answer: Record) -> Record:
    """Return the counts as they are: there are more of them than the bill needs."""
    usage = answer.get("usage")
    return {} if usage is None else {"usage": usage}


def _inside(record: Record, name: str) -> Any:
    value = record.get(name)
    return value if isinstance(value, dict) else {}

"""OpenAI Responses, provider side: reads an answer into canonical events: a whole response, or its stream of events.

Items are read in `read_item.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from apps.gateway.canonical.chat import served_tier
from apps.gateway.canonical.events import Event, Finished, FinishReason, OpaqueDelta, Started, UsageReported
from apps.gateway.dialects.chat.responses.provider.read_item import DELTAS, ItemReader
from apps.gateway.dialects.chat.responses.wire import NAME, failed, read_usage, text_of
from apps.gateway.dialects.reading.answers import (
    read_answer,
    stream_reader,
    truncated_answer,
    unreadable_answer,
)
from apps.gateway.dialects.reading.fields import Record

_KNOWN: Final = frozenset(
    [
        "id",
        "object",
        "created_at",
        "completed_at",
        "status",
        "model",
        "output",
        "output_text",
        "usage",
        "error",
        "incomplete_details",
    ]
)
# The fields of its request that a response repeats.
_ECHOED: Final = frozenset(
    [
        "background",
        "conversation",
        "frequency_penalty",
        "include",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "parallel_tool_calls",
        "presence_penalty",
        "previous_response_id",
        "prompt",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning",
        "safety_identifier",
        "store",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "truncation",
        "user",
    ]
)
_BEGINNINGS: Final = frozenset({"response.created", "response.queued", "response.in_progress"})
_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
# Why an answer is not complete. A word not listed means that it was cut off somewhere.
_INCOMPLETE: Final[dict[str, FinishReason]] = {"max_output_tokens": "length", "content_filter": "content_filter"}
_UNFINISHED: Final = frozenset({"queued", "in_progress"})
_END = b"[DONE]"


def read_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer; one that cannot be read, or holds an error, ends with `Failed`."""
    try:
        response = read_answer(body)
    except ValueError:
        response = None
    answer = _Answer()
    if isinstance(response, dict) and response.get("error"):
        yield failed(response["error"])
    elif not isinstance(response, dict) or not isinstance(response.get("output"), list):
        yield unreadable_answer("The provider sent an answer without output")
    elif text_of(response.get("status")) in _UNFINISHED:
        yield unreadable_answer("The provider sent an answer that it has not finished")
    else:
        yield from answer.begin(response)
        yield from answer.end(response)


class _Answer:
    """State of the answer that was read so far."""

    def __init__(self) -> None:
        self.over = self.failed = False
        self._started = False
        self._known: Record = {}
        self._items = ItemReader()

    def cut(self) -> list[Event]:
        """Return the failure of an answer that breaks off."""
        return [truncated_answer()]

    def read(self, frame: bytes) -> list[Event]:
        """Return the events of one of the provider's events; kinds that are not known say nothing."""
        try:
            wire = read_answer(frame)
        except ValueError:
            return self._end_with(unreadable_answer("The provider sent invalid JSON"))
        if not isinstance(wire, dict):
            return self._end_with(unreadable_answer("The provider sent an invalid event"))
        kind = text_of(wire.get("type"))
        if kind == "error" or (kind is None and "error" in wire):
            inner = wire.get("error")
            return self._end_with(failed(inner if inner else {**wire, "type": None}))
        if kind in _BEGINNINGS or kind in _ENDS:
            response = wire.get("response")
            answered: Record = response if isinstance(response, dict) else {}
            # Some tell of a failure beside the response.
            answered = answered if answered.get("error") else {**answered, "error": wire.get("error")}
            return self.begin(answered) if kind in _BEGINNINGS else self._finish(kind, answered)
        events: list[Event] = []
        self._read_item(kind or "", wire, events)
        return [*self.begin({}), *events] if events and not self._started else events

    def _read_item(self, kind: str, wire: Record, events: list[Event]) -> None:
        index = wire.get("output_index")
        if not isinstance(index, int):
            return
        if kind in DELTAS:
            piece, number = DELTAS[kind]
            self._items.read_delta(index, piece, wire.get(number), wire, events)
        elif kind == "response.output_item.added":
            self._items.begin(index, wire.get("item"), events)
        elif kind == "response.output_item.done":
            self._items.end(index, wire.get("item"), events)
        elif kind == "response.output_text.annotation.added":
            self._items.annotate(index, wire.get("content_index"), wire.get("annotation"), events)
        else:
            self._items.note(index, wire, events)

    def begin(self, response: Record) -> list[Event]:
        """Announce the answer, once; add later changes of its fields."""
        news = {
            name: value
            for name, value in response.items()
            if name not in _KNOWN
            and name not in _ECHOED
            and value not in (None, [], {})
            and self._known.get(name) != value
        }
        self._known |= news
        if self._started:
            return [OpaqueDelta(dialect=NAME, data=news, of="reply")] if news else []
        self._started = True
        created = response.get("created_at")
        return [
            Started(
                id=text_of(response.get("id")) or "",
                model=text_of(response.get("model")) or "",
                created=int(created) if isinstance(created, int | float) and 0 <= created < 10**12 else 0,
                extra={NAME: news} if news else {},
            )
        ]

    def _finish(self, kind: str | None, response: Record) -> list[Event]:
        """Return the events of the last thing that is said."""
        error = response.get("error")
        if error or kind in {"response.failed", "response.cancelled"}:
            return self._end_with(failed(error or {"message": "The provider broke its answer off"}))
        return [*self.begin(response), *self.end(response)]

    def end(self, response: Record) -> list[Event]:
        """Return the last events. The whole output is read where nothing of it had streamed."""
        if text_of(response.get("status")) in {"failed", "cancelled"}:
            return self._end_with(failed({"message": "The provider broke its answer off"}))
        self.over = True
        events: list[Event] = []
        output = response.get("output")
        if not self._items.seen and isinstance(output, list):
            for index, item in enumerate(output):
                self._items.end(index, item, events)
        elif isinstance(output, list):
            self._items.end_waiting(output, events)
        self._items.close(events)
        if usage := read_usage(response.get("usage"), self._items.searches, self._items.tool_calls):
            tier = served_tier(response.get("service_tier"))
            events.append(UsageReported(usage=replace(usage, service_tier=tier) if tier else usage))
        events.append(self._finished(response))
        return events

    def _finished(self, response: Record) -> Finished:
        status, details = text_of(response.get("status")), response.get("incomplete_details")
        why = text_of(details.get("reason")) if isinstance(details, dict) else None
        if status == "incomplete" or why is not None:
            return Finished(reason=_INCOMPLETE.get(why or "", "length"), native=why or status)
        return Finished(reason="tool_calls" if self._items.calls else "stop", native=status)

    def _end_with(self, event: Event) -> list[Event]:
        self.over = self.failed = True
        return [event]


read_events = stream_reader(_Answer, _END)

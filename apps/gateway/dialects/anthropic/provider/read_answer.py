"""Anthropic Messages, provider side: reads an answer into canonical events. A plain answer is read as the stream it
would have been.

Knows the shapes of events and messages; blocks are read in `read_block.py`. Nothing is lost: what is not known here
travels as opaque data. Must never know a provider.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from apps.gateway.canonical.events import Event, Finished, OpaqueDelta, Started, UsageReported, Waiting
from apps.gateway.dialects.answer_errors import drain_frames, truncated_answer, unreadable_answer
from apps.gateway.dialects.anthropic.provider.read_block import BlockReader
from apps.gateway.dialects.anthropic.shared.failures import failed
from apps.gateway.dialects.anthropic.shared.usage import COUNTS, read_usage
from apps.gateway.dialects.anthropic.shared.wire import FINISH_REASONS, NAME

Record = dict[str, Any]

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
    # What was used is said at its end, as in a stream: counts that come before all text are taken for a beginning.
    events = answer.begin({name: value for name, value in message.items() if name != "usage"})
    for index, (block, raw) in enumerate(zip(message["content"], _raw_blocks(body), strict=True)):
        answer.blocks.begin(index, block, events, raw.get("input"))
        answer.blocks.end(index, events)
    answer.end_is_near(message, message, events)
    yield from events
    yield from answer.end()


def _raw_blocks(body: bytes) -> list[dict[str, msgspec.Raw]]:
    """Return the blocks of a message by field, each as the bytes it was: arguments stay the text the model wrote."""
    return [
        _read_fields(raw) if raw.startswith(b"{") else {}
        for raw in map(bytes, msgspec.json.decode(_read_fields(body)["content"], type=list[msgspec.Raw]))
    ]


def read_events(frames: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of a streamed answer; an empty frame is silence and becomes `Waiting`.

    An answer that breaks off, holds an error or cannot be read ends with `Failed`.
    """
    answer = _Answer()
    frames = iter(frames)
    for frame in frames:
        if not frame:
            yield Waiting()
            continue
        yield from answer.read(frame)
        if answer.over:
            if not answer.failed:
                drain_frames(frames)
            return
    yield truncated_answer()


def _parsed(data: bytes) -> Record | None:
    """Return the object in a frame or a body, None when it holds no such thing."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


class _Answer:
    """What has been read so far."""

    def __init__(self) -> None:
        self.over = self.failed = False
        self.blocks = BlockReader()
        self._usage: Record = {}
        self._begun_counting = False
        self._known: Record = {}
        self._begun = False
        self._stop: str | None = None
        # Whether the counts of the beginning are those of a whole message, and no others have come since.
        self._counted_whole = False

    def read(self, frame: bytes) -> list[Event]:
        """Return the events of one of the provider's events; kinds that are not known say nothing."""
        wire = _parsed(frame)
        if wire is None:
            return self._fail(unreadable_answer("The provider sent what is not JSON"))
        kind = wire.get("type")
        events: list[Event] = []
        if kind == "message_start":
            message = wire.get("message")
            return self.begin(message) if isinstance(message, dict) and not self._begun else []
        if kind == "error" or (kind is None and "error" in wire):
            return self._fail(failed(wire))
        if not self._begun:
            return [] if kind == "ping" else self._fail(unreadable_answer("The provider's answer has no beginning"))
        if kind == "content_block_start":
            self.blocks.begin(_index(wire), wire.get("content_block"), events)
        elif kind == "content_block_delta":
            self.blocks.go_on(_index(wire), wire.get("delta"), events)
        elif kind == "content_block_stop":
            self.blocks.end(_index(wire), events)
        elif kind == "message_delta":
            delta = wire.get("delta")
            around = {name: value for name, value in wire.items() if name not in {"type", "delta"}}
            self.end_is_near({**around, **(delta if isinstance(delta, dict) else {})}, wire, events)
        elif kind == "message_stop":
            events.extend(self.end())
        return events

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

    def end_is_near(self, fields: Record, counted: Record, events: list[Event]) -> None:
        """Take in what is said at the end: why the model stopped, what was used, and whatever else."""
        stop, sequence = fields.get("stop_reason"), fields.get("stop_sequence")
        if isinstance(stop, str):
            self._stop = stop
        if isinstance(sequence, str):
            events.append(OpaqueDelta(dialect=NAME, data={"stop_sequence": sequence}, of="choice"))
        self._learn(_beyond(fields), events)
        self._count(counted.get("usage"), events)

    def _learn(self, fields: Record, events: list[Event]) -> None:
        news = {name: value for name, value in fields.items() if self._known.get(name) != value}
        if news:
            self._known |= news
            events.append(OpaqueDelta(dialect=NAME, data=news, of="reply"))

    def _count(self, reported: Any, events: list[Event]) -> None:
        """Report the counts so far: later ones replace earlier ones, field by field, and what is left out stays."""
        if not isinstance(reported, dict):
            return
        before = self._usage
        self._usage = before | {name: value for name, value in reported.items() if value is not None}
        rest = {name: value for name, value in self._usage.items() if name not in COUNTS}
        if rest:
            self._learn({"usage": rest}, events)
        # An answer of as many tokens as were counted at its beginning is counted again with the same number.
        again = self._begun_counting and reported.get("output_tokens") is not None
        self._begun_counting = True
        if (again or self._usage != before) and (usage := read_usage(self._usage)):
            self._counted_whole = False
            events.append(UsageReported(usage=usage))

    def end(self) -> list[Event]:
        """Return what is left to say; an answer without a reason for its end was cut off."""
        self.over = True
        if self._stop is None:
            return self._fail(truncated_answer())
        events: list[Event] = []
        self.blocks.close(events)
        reason = FINISH_REASONS.get(self._stop, "stop")
        if reason == "stop" and self.blocks.calls:
            reason = "tool_calls"
        if self._counted_whole and (usage := read_usage(self._usage)):
            events.append(UsageReported(usage=usage))
        events.append(Finished(reason=reason, native=self._stop))
        return events

    def _fail(self, event: Event) -> list[Event]:
        self.over = self.failed = True
        return [event]


def _index(wire: Record) -> int:
    index = wire.get("index")
    return index if isinstance(index, int) else 0


def _beyond(message: Record) -> Record:
    """Return what a message says beyond what is known."""
    return {name: value for name, value in message.items() if name not in _MESSAGE_FIELDS and value is not None}

"""Bedrock Converse, provider side: reads an answer into canonical events. A plain answer is read as the stream it would
have been.

Knows the shapes of events, and that the counts come after the end. Must never know a model by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from apps.gateway.canonical.events import Event, Finished, OpaqueDelta, Started, UsageReported, Waiting
from apps.gateway.canonical.service_tier import served_tier
from apps.gateway.dialects.chat.bedrock.provider.failures import exception, failed, find_failure
from apps.gateway.dialects.chat.bedrock.provider.read_block import BlockReader
from apps.gateway.dialects.chat.bedrock.shared.usage import read_usage
from apps.gateway.dialects.chat.bedrock.shared.wire import FAILURE_WORDS, FINISH_REASONS, NAME, Record
from apps.gateway.dialects.reading.answer_errors import drain_frames, read_answer, truncated_answer, unreadable_answer

# What an answer says about itself, beside what is read here.
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
        yield unreadable_answer("The provider sent what is not JSON")
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


def read_events(frames: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of a streamed answer; an empty frame is silence and becomes `Waiting`.

    An answer that breaks off, ends with an exception or cannot be read ends with `Failed`.
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
    yield from answer.end()


class _Answer:
    """What has been read so far."""

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
            return self._fail(unreadable_answer("The provider sent what is not JSON"))
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
            self.blocks.go_on(_index(content), content.get("delta"), events)
        elif kind == "contentBlockStop":
            self.blocks.end(_index(content), events)
        elif kind == "messageStop":
            self.stop(content.get("stopReason"))
            self._learn(content)
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
        self._learn(content)

    def end(self) -> list[Event]:
        """Return what is left to say; an answer without a reason for its end was cut off."""
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

    def _learn(self, content: Record) -> None:
        self._around |= {name: content[name] for name in _AROUND if content.get(name) not in (None, {}, [])}

    def _fail(self, event: Event) -> list[Event]:
        self.over = self.failed = True
        return [event]


def _index(content: Record) -> int:
    index = content.get("contentBlockIndex")
    return index if isinstance(index, int) else 0

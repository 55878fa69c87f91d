"""Google generateContent, provider side: reads an answer into canonical events. A plain answer is read as a stream of
one chunk.

Knows the shapes of chunks, and that counts in them are running totals. Must never know a model by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from apps.gateway.canonical.events import Event, Finished, OpaqueDelta, Started, UsageReported, Waiting
from apps.gateway.dialects import Failure
from apps.gateway.dialects.chat.google.provider.failures import failed, find_failure
from apps.gateway.dialects.chat.google.provider.read_candidate import CandidateReader, says_nothing
from apps.gateway.dialects.chat.google.shared.usage import adds_up, read_usage
from apps.gateway.dialects.chat.google.shared.wire import FAILURE_WORDS, FINISH_REASONS, NAME, Record
from apps.gateway.dialects.reading.answer_errors import read_answer, truncated_answer, unreadable_answer
from apps.kernel.usage import Usage


def read_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer; one that cannot be read, or holds an error, ends with `Failed`."""
    answer = _Answer()
    yield from answer.read(body)
    if not answer.over:
        yield from answer.end(whole=True)


def read_events(frames: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of a streamed answer; an empty frame is silence and becomes `Waiting`.

    Google marks no end: an answer is complete when every candidate has said why it stopped, or when a last chunk that
    says nothing more brings counts that add up.
    """
    answer = _Answer()
    for frame in frames:
        if not frame:
            yield Waiting()
            continue
        yield from answer.read(frame)
        if answer.over:
            return
    yield from answer.end(whole=False)


class _Answer:
    """What has been read so far."""

    def __init__(self) -> None:
        self.over = False
        self._started = False
        self._candidates: dict[int, CandidateReader] = {}
        self._blocked: str | None = None
        self._feedback: Record = {}
        self._reported: Any = None
        self._usage: Usage | None = None
        # Whether the last chunk brought nothing but the counts of the whole answer.
        self._is_counted = False

    def read(self, data: bytes) -> list[Event]:
        """Return the events of a chunk."""
        try:
            chunk = read_answer(data)
        except ValueError:
            return self._end_with(unreadable_answer("The provider sent what is not JSON"))
        if failure := find_failure(chunk):
            return self._end_with(failed(chunk, failure))
        if not isinstance(chunk, dict):
            return self._end_with(unreadable_answer("The provider sent an answer without candidates"))
        events: list[Event] = []
        candidates = chunk.get("candidates")
        feedback = chunk.get("promptFeedback")
        if isinstance(feedback, dict) and isinstance(word := feedback.get("blockReason"), str) and word:
            self._blocked, self._feedback = word, feedback
        if not self._started and (candidates or self._blocked or chunk.get("responseId")):
            self._started = True
            events.append(_started(chunk))
        for position, candidate in enumerate(candidates if isinstance(candidates, list) else ()):
            if isinstance(candidate, dict):
                self._read_candidate(candidate, position, events)
                if self.over:
                    return events
        self._is_counted = says_nothing(candidates) and adds_up(chunk.get("usageMetadata"))
        self._reported = chunk.get("usageMetadata") or self._reported
        self._count(events)
        return events

    def end(self, *, whole: bool) -> list[Event]:
        """Return what is left to say."""
        if not self._candidates and self._blocked:
            self.over = True
            own = OpaqueDelta(dialect=NAME, data={"promptFeedback": self._feedback}, of="reply")
            words = self._feedback.get("blockReasonMessage")
            said = words if isinstance(words, str) and words.strip() else None
            return [own, Finished(reason="content_filter", native=self._blocked, explanation=said)]
        if not self._candidates:
            return self._end_with(
                unreadable_answer("The provider sent an answer without candidates") if whole else truncated_answer()
            )
        unfinished = any(reader.finish_word is None for reader in self._candidates.values())
        if unfinished and not whole and not self._is_counted:
            return self._end_with(truncated_answer())
        events: list[Event] = []
        for index, reader in sorted(self._candidates.items()):
            reader.end(events)
            reason = FINISH_REASONS.get(reader.finish_word or "", "stop")
            if reason == "stop" and reader.has_calls:
                reason = "tool_calls"
            said = reader.explanation if reason == "content_filter" else None
            events.append(Finished(choice=index, reason=reason, native=reader.finish_word, explanation=said))
        self.over = True
        return events

    def _read_candidate(self, candidate: Record, position: int, events: list[Event]) -> None:
        index = candidate.get("index")
        if not isinstance(index, int) or isinstance(index, bool) or index < 0:
            index = position
        reader = self._candidates.get(index)
        if reader is None:
            reader = self._candidates[index] = CandidateReader(index)
        word, words = candidate.get("finishReason"), candidate.get("finishMessage")
        if isinstance(word, str) and word in FAILURE_WORDS:
            message = words if isinstance(words, str) and words else f"The provider ended its answer with `{word}`"
            events.extend(self._end_with(failed(None, Failure(message=message, code=word.lower()))))
            return
        reader.read(candidate, events)

    def _count(self, events: list[Event]) -> None:
        """Report the counts where they have changed."""
        readers = self._candidates.values()
        searches = set().union(*(reader.queries | reader.called_queries for reader in readers))
        pictures = set().union(*(reader.picture_queries for reader in readers))
        usage = read_usage(self._reported, len(searches) + len(pictures))
        if usage is not None and (maps := sum(reader.map_queries for reader in readers)):
            usage = replace(usage, tool_calls={"google_maps": maps})
        if usage is not None and usage != self._usage:
            self._usage = usage
            events.append(UsageReported(usage=usage))

    def _end_with(self, event: Event) -> list[Event]:
        self.over = True
        return [event]


def _started(chunk: Record) -> Started:
    name, model = chunk.get("responseId"), chunk.get("modelVersion")
    return Started(
        id=name if isinstance(name, str) else "",
        model=model if isinstance(model, str) else "",
        created=_seconds(chunk.get("createTime")),
    )


def _seconds(moment: Any) -> int:
    """Return a time as Google writes it in Unix seconds; 0 where there is none."""
    try:
        return max(int(datetime.fromisoformat(moment).timestamp()), 0) if isinstance(moment, str) else 0
    except (ValueError, OverflowError, OSError):
        return 0

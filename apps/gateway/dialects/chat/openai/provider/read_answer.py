"""OpenAI Chat Completions, provider side: reads an answer into canonical events. A plain answer is read as a stream of
one chunk.

Knows the shapes of chunks, and how servers deviate from them. Must never know who deviates. Nothing is lost: fields not
known here travel as opaque data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from apps.gateway.canonical.events import (
    Annotated,
    Event,
    Finished,
    OpaqueDelta,
    Searched,
    Started,
    TextDelta,
    UsageReported,
    Waiting,
)
from apps.gateway.canonical.service_tier import served_tier
from apps.gateway.dialects import Failure
from apps.gateway.dialects.chat.openai.provider.read_choice import ChoiceReader
from apps.gateway.dialects.chat.openai.provider.sources import read_sources
from apps.gateway.dialects.chat.openai.shared.failures import failed, find_failure
from apps.gateway.dialects.chat.openai.shared.usage import read_usage
from apps.gateway.dialects.chat.openai.shared.wire import FAILURE_WORDS, FINISH_REASONS, NAME
from apps.gateway.dialects.reading.answer_errors import drain_frames, read_answer, truncated_answer, unreadable_answer
from apps.gateway.dialects.reading.stream_template import StreamTemplate
from apps.kernel.usage import Usage

Record = dict[str, Any]

_CHUNK_FIELDS = frozenset({"id", "object", "created", "model", "choices", "usage", "obfuscation", "error"})
_USUAL_CHOICE_FIELDS = frozenset({"index", "delta", "message", "finish_reason"})
_CHOICE_FIELDS = _USUAL_CHOICE_FIELDS | {"logprobs", "error"}
_END = b"[DONE]"


def read_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer; one that cannot be read, or holds an error, ends with `Failed`."""
    answer = _Answer(whole=True)
    yield from answer.read(body)
    if not answer.over:
        yield from answer.end(announced=True)


def read_events(frames: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of a streamed answer; an empty frame is silence and becomes `Waiting`.

    An answer that breaks off, holds an error or cannot be read ends with `Failed`.
    """
    answer = _Answer()
    frames = iter(frames)
    for frame in frames:
        if not frame:
            yield Waiting()
        elif frame.strip() == _END:
            yield from answer.end(announced=True)
            drain_frames(frames)
            return
        else:
            yield from answer.read(frame)
            if answer.over:
                return
    yield from answer.end(announced=False)


class _Answer:
    """What has been read so far. The ends of choices are held back: providers say them early, twice, or wrong."""

    def __init__(self, *, whole: bool = False) -> None:
        self.over = False
        self._whole = whole
        self._started = self._cites = False
        self._extra: Record = {}
        self._choices: dict[int, ChoiceReader] = {}
        self._repeating = None if whole else StreamTemplate()
        # Of the choice that was learnt.
        self._index = 0

    def read(self, data: bytes) -> list[Event]:
        """Return the events of a chunk."""
        if self._repeating is not None and (text := self._repeating.text_of(data)) is not None:
            self._choices[self._index].said += len(text)
            return [TextDelta(choice=self._index, text=text)] if text else []
        try:
            chunk = read_answer(data)
        except ValueError:
            return self._end_with(unreadable_answer("The provider sent what is not JSON"))
        if failure := find_failure(chunk):
            return self._end_with(failed(chunk, failure))
        choices = chunk.get("choices") if isinstance(chunk, dict) else None
        if not isinstance(choices, list):
            if self._whole or not isinstance(chunk, dict):
                return self._end_with(unreadable_answer("The provider sent an answer without choices"))
            choices = []
        events: list[Event] = []
        news = self._begin(chunk, choices, events)
        for position, choice in enumerate(choices):
            if isinstance(choice, dict) and not self._read_choice(choice, position, events):
                return events
            if events and isinstance(events[-1], Annotated):
                self._cites = True
        usage = chunk.get("usage")
        if usage is None and news:
            # Some report it in an object of their own.
            usage = next(
                (aside["usage"] for aside in news.values() if isinstance(aside, dict) and "usage" in aside), None
            )
        if usage is not None and (counts := read_usage(usage)):
            events.append(UsageReported(usage=self._complete_counts(counts, events)))
        if len(events) == 1 and len(choices) == 1 and self._repeating is not None:
            self._learn(self._repeating, data, chunk, events[0])
        return events

    def _learn(self, repeating: StreamTemplate, data: bytes, chunk: Record, said: Event) -> None:
        """Remember what stands around a text that came alone, where its choice goes on after it."""
        choice = chunk["choices"][0]
        if not isinstance(said, TextDelta) or choice.get("finish_reason") or not isinstance(choice.get("delta"), dict):
            return
        if "message" in choice:
            # Every chunk of such a stream tells more than the one before.
            return
        if repeating.learn(data, chunk, said.text, _put_text):
            self._index = said.choice

    def _complete_counts(self, counts: Usage, events: list[Event]) -> Usage:
        """Return the counts with one search where pages of the web are cited and the provider counts none, as OpenAI,
        and with the tier of service that the answer names."""
        self._cites = self._cites or Annotated in map(type, events)
        listed = not self._cites and bool(read_sources(self._extra))
        if (self._cites or listed) and not counts.web_searches:
            counts = replace(counts, web_searches=1)
        if tier := served_tier(self._extra.get("service_tier")):
            counts = replace(counts, service_tier=tier)
        return counts

    def _begin(self, chunk: Record, choices: list[Any], events: list[Event]) -> Record:
        """Announce the answer with its first chunk that says anything, and later what its other fields say anew.

        Returns what is new.
        """
        known, news = self._extra, {}
        if not chunk.keys() <= _CHUNK_FIELDS:
            news = {
                name: value
                for name, value in chunk.items()
                if name not in _CHUNK_FIELDS and value is not None and known.get(name) != value
            }
            known |= news
        if self._started:
            if news:
                events.append(OpaqueDelta(dialect=NAME, data=news, of="reply"))
        elif choices or chunk.get("id"):
            self._started = True
            name, model, created = chunk.get("id"), chunk.get("model"), chunk.get("created")
            events.append(
                Started(
                    id=name if isinstance(name, str) else "",
                    model=model if isinstance(model, str) else "",
                    created=int(created) if isinstance(created, int | float) else 0,
                    extra={NAME: dict(known)} if known else {},
                )
            )
        return news

    def _read_choice(self, choice: Record, position: int, events: list[Event]) -> bool:
        """Add the events of a choice; False when it says that the provider broke down."""
        index = choice.get("index")
        if not isinstance(index, int) or index < 0:
            index = position
        reader = self._choices.get(index)
        if reader is None:
            reader = self._choices[index] = ChoiceReader(index, whole=self._whole)
        word = choice.get("finish_reason")
        if word is not None or "error" in choice:
            failure = find_failure(choice) if "error" in choice else None
            if failure is None and isinstance(word, str) and word in FAILURE_WORDS:
                failure = Failure(message=f"The provider ended its answer with `{word}`")
            if failure is not None:
                events.extend(self._end_with(failed(choice, failure)))
                return False
        if not choice.keys() <= _USUAL_CHOICE_FIELDS:
            extra = {name: value for name, value in choice.items() if name not in _CHOICE_FIELDS and value is not None}
            reader.read_around(extra, choice.get("logprobs"), events)
        delta, message = choice.get("delta"), choice.get("message")
        if isinstance(delta, dict) and delta:
            reader.read(delta, events)
        if isinstance(message, dict):
            if "delta" in choice and (delta or reader.has_begun):
                # Perplexity's: the text so far, which its deltas may lack.
                reader.catch_up(message, events)
            else:
                reader.read(message, events)
        if isinstance(word, str) and word:
            reader.finish_word = word
        return True

    def end(self, *, announced: bool) -> list[Event]:
        """Return what is left to say; an end that was not announced counts when every choice had come to its own."""
        complete = announced or bool(self._choices)
        if not announced and any(reader.finish_word is None for reader in self._choices.values()):
            complete = False
        if not complete:
            return self._end_with(truncated_answer())
        events: list[Event] = []
        for index, reader in sorted(self._choices.items()):
            reader.end(events)
            if not self._cites and (pages := read_sources(self._extra)):
                events.append(Searched(choice=index))
                events += [Annotated(choice=index, annotation=page) for page in pages]
            word = reader.finish_word
            reason = FINISH_REASONS.get(word.lower(), "stop") if word else "stop"
            if reason == "stop" and reader.has_calls:
                reason = "tool_calls"
            events.append(Finished(choice=index, reason=reason, native=word))
        self.over = True
        return events

    def _end_with(self, event: Event) -> list[Event]:
        self.over = True
        return [event]


def _put_text(chunk: Record, text: str) -> None:
    chunk["choices"][0]["delta"]["content"] = text

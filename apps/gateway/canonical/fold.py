"""Fold of canonical events into a whole reply.

Pure; knows nothing but the canonical language.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from apps.gateway.canonical.events import (
    Annotated,
    AudioBytes,
    AudioDelta,
    Choice,
    Event,
    Failed,
    Finished,
    ImageMade,
    Logprobs,
    OpaqueDelta,
    PartialImage,
    ReasoningDelta,
    RefusalDelta,
    Reply,
    ResultsGiven,
    Searched,
    Started,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    TranscriptTimed,
    UsageReported,
    Waiting,
    WholeCall,
)


class ReplyBuilder:
    """Adds up events as they pass. Text of any kind is joined once, at the end, so that long answers stay linear."""

    def __init__(self) -> None:
        self._reply = Reply()
        self._choices: dict[int, _ChoiceBuilder] = {}

    def add(self, event: Event) -> None:
        """Take one event in; silence is nothing. Raises the error of a `Failed` event."""
        take = _HANDLERS.get(type(event))
        if take is None:
            self._choice(event).add(event)
        else:
            take(self, event)

    def _text(self, event: TextDelta) -> None:
        self._choice(event).texts.append(event.text)

    def _arguments(self, event: ToolCallDelta) -> None:
        self._choice(event).arguments.setdefault(event.index, []).append(event.arguments)

    def _started(self, event: Started) -> None:
        self._reply.id, self._reply.model, self._reply.created = event.id, event.model, event.created
        self._reply.provider, self._reply.log_id = event.provider, event.log_id
        if event.extra:
            self._reply.extra = {dialect: dict(data) for dialect, data in event.extra.items()}

    def _results(self, event: ResultsGiven) -> None:
        self._reply.results = [*self._reply.results, *event.values]

    def _usage(self, event: UsageReported) -> None:
        self._reply.usage = event.usage

    def _finished(self, event: Finished) -> None:
        choice = self._choice(event).choice
        choice.finish, choice.native_finish = event.reason, event.native
        choice.stop_sequence, choice.explanation = event.stop_sequence, event.explanation

    def _opaque(self, event: OpaqueDelta) -> None:
        if event.of == "reply":
            self._reply.extra.setdefault(event.dialect, {}).update(event.data)
        elif event.of != "stream":
            self._choice(event).add(event)

    def _failed(self, event: Failed) -> None:
        raise event.error

    def _nothing(self, event: Event) -> None:
        """Keep nothing: audio and unfinished images are passed on as they come, and never whole."""

    def reply(self) -> Reply:
        """Return the reply so far."""
        self._reply.choices = [self._choices[index].whole() for index in sorted(self._choices)]
        return self._reply

    def _choice(self, event: Event) -> _ChoiceBuilder:
        choice = self._choices.get(event.choice)
        if choice is None:
            choice = self._choices[event.choice] = _ChoiceBuilder()
        return choice


# Not by `match`, which asks one kind after the other; a struct's takes four times as long to say no.
_HANDLERS: dict[type[Event], Callable[[ReplyBuilder, Any], None]] = {
    TextDelta: ReplyBuilder._text,
    ToolCallDelta: ReplyBuilder._arguments,
    Started: ReplyBuilder._started,
    UsageReported: ReplyBuilder._usage,
    ResultsGiven: ReplyBuilder._results,
    Finished: ReplyBuilder._finished,
    OpaqueDelta: ReplyBuilder._opaque,
    Failed: ReplyBuilder._failed,
    AudioBytes: ReplyBuilder._nothing,
    Waiting: ReplyBuilder._nothing,
    PartialImage: ReplyBuilder._nothing,
}


class _ChoiceBuilder:
    """One answer while it arrives: its texts in pieces."""

    __slots__ = ("arguments", "audio_deltas", "blocks", "calls", "choice", "logprobs", "refusals", "texts")

    def __init__(self) -> None:
        self.choice = Choice()
        self.texts: list[str] = []
        self.refusals: list[str] = []
        self.blocks: dict[int, list[ReasoningDelta]] = {}
        self.calls: dict[int, WholeCall] = {}
        self.arguments: dict[int, list[str]] = {}
        self.audio_deltas: list[AudioDelta] = []
        self.logprobs: list[dict[str, Any]] = []

    def add(self, event: Event) -> None:
        """Take in what happens less often than text."""
        choice = self.choice
        match event:
            case ReasoningDelta():
                self.blocks.setdefault(event.block, []).append(event)
            case ToolCallStarted():
                self.calls[event.index] = WholeCall(id=event.id, name=event.name, extra=event.extra)
            case RefusalDelta():
                self.refusals.append(event.text)
            case ImageMade():
                choice.images.append(event.url)
            case AudioDelta():
                self.audio_deltas.append(event)
            case TranscriptTimed():
                choice.timing = _joined_timing(choice.timing, event)
            case Annotated():
                choice.annotations.append(event.annotation)
            case Searched():
                choice.searches.append(event.query)
            case Logprobs():
                self.logprobs.append(event.logprobs)
            case OpaqueDelta():
                extra = choice.extra if event.of == "message" else choice.choice_extra
                extra.setdefault(event.dialect, {}).update(event.data)

    def whole(self) -> Choice:
        """Return the answer so far."""
        choice = self.choice
        choice.text = "".join(self.texts) if self.texts else None
        choice.refusal = "".join(self.refusals) if self.refusals else None
        choice.reasoning = list(map(_joined_reasoning, self.blocks.values()))
        choice.audio = _joined_audio(self.audio_deltas) if self.audio_deltas else None
        choice.logprobs = _joined_logprobs(self.logprobs) if self.logprobs else None
        choice.tool_calls = list(self.calls.values())
        for index, call in self.calls.items():
            call.arguments = "".join(self.arguments.get(index, ()))
        return choice


def fold(events: Iterable[Event]) -> Reply:
    """Return the whole reply. Raises the error of a `Failed` event."""
    state = ReplyBuilder()
    for event in events:
        state.add(event)
    return state.reply()


def _joined_reasoning(deltas: list[ReasoningDelta]) -> ReasoningDelta:
    """Return one block: the texts one after another, of everything else the last that was said."""
    first = deltas[0]
    return ReasoningDelta(
        choice=first.choice,
        text="".join(delta.text for delta in deltas),
        summary=first.summary,
        signature=_last(delta.signature for delta in deltas),
        data=_last(delta.data for delta in deltas),
        id=_last(delta.id for delta in deltas),
        format=_last(delta.format for delta in deltas),
        block=first.block,
    )


def _joined_audio(deltas: list[AudioDelta]) -> AudioDelta:
    expiries = [delta.expires_at for delta in deltas if delta.expires_at is not None]
    return AudioDelta(
        choice=deltas[0].choice,
        id=_last(delta.id for delta in deltas),
        data="".join(delta.data for delta in deltas),
        transcript="".join(delta.transcript for delta in deltas),
        expires_at=expiries[-1] if expiries else None,
    )


def _joined_logprobs(deltas: list[dict[str, Any]]) -> dict[str, Any]:
    """Join the lists (`content`, `refusal`) of log probabilities; anything else is as it was said last."""
    joined: dict[str, Any] = {}
    for delta in deltas:
        for name, value in delta.items():
            if isinstance(value, list) and isinstance(joined.get(name), list):
                joined[name].extend(value)
            else:
                joined[name] = list(value) if isinstance(value, list) else value
    return joined


def _last(values: Iterable[str | None]) -> str | None:
    """Return the last that is not None."""
    found = [value for value in values if value is not None]
    return found[-1] if found else None


def _joined_timing(known: TranscriptTimed | None, more: TranscriptTimed) -> TranscriptTimed:
    if known is None:
        return more
    return TranscriptTimed(
        segments=[*known.segments, *more.segments],
        words=[*known.words, *more.words],
        language=more.language or known.language,
        duration=known.duration if more.duration is None else more.duration,
    )

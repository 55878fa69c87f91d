"""Canonical answer events: an answer as a sequence of small events while it streams; a fold makes it whole. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, Literal

import msgspec

from apps.kernel.errors import ApiError
from apps.kernel.usage import Usage

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]


class Event(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Something that happened; `choice` tells which of `n` answers it belongs to."""

    choice: int = 0


class Started(Event):
    """The provider began to answer. `extra`: by wire format, top-level fields that only that format understands.

    `prompt_estimate` is about how many tokens the prompt has, for formats that state it before the provider's count.
    `provider` answers, and `log_id` is the hexadecimal id of the request's log entry, by which it can be asked about.
    """

    id: str = ""
    provider: str = ""
    log_id: str = ""
    model: str = ""
    created: int = 0
    prompt_estimate: int = 0
    extra: dict[str, dict[str, Any]] = {}


class TextDelta(Event):
    """More text."""

    text: str


class ReasoningDelta(Event):
    """More thinking, or the signature on it (`signature`), or thinking that only its maker can read (`data`).

    `block` numbers the thinking blocks of an answer, so that signatures stay with what they sign. `format` names the
    maker's way of signing; with one, clients get the blocks one by one to send them back, else only the text.
    """

    text: str = ""
    summary: bool = False
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    format: str | None = None
    block: int = 0


class RefusalDelta(Event):
    """More of the model's words for declining."""

    text: str


class ToolCallStarted(Event):
    """A tool call begins; `index` numbers the calls of an answer.

    `extra` holds what else belongs to the call and must come back with it, named as OpenAI's format does.
    """

    index: int
    id: str
    name: str
    extra: dict[str, Any] | None = None


class ToolCallDelta(Event):
    """More text of a call's arguments."""

    index: int
    arguments: str


class ImageMade(Event):
    """A whole image (a `data:` or `https:` URL)."""

    url: str


class PartialImage(Event):
    """An image while it is being made (a `data:` URL), the `index`-th of it, from 0: no part of the whole reply."""

    url: str
    index: int = 0


class ResultsGiven(Event):
    """One value for each thing that was asked about, in order; what a value is depends on the kind of request.

    For embeddings it is a vector: its numbers, or base64 of them as float32, little-endian. A ranking has the wanted
    documents, the most relevant first (`Ranked`), and moderation a `Judgement` of each input.
    """

    values: list[Any]


class Annotated(Event):
    """A citation, as OpenAI writes it: `{type: url_citation, url_citation: {...}}`."""

    annotation: dict[str, Any]


class Searched(Event):
    """The provider searched the web; `query` is what for, empty where it does not say."""

    query: str = ""


class Logprobs(Event):
    """Log probabilities of tokens, as OpenAI writes them: of the text that comes next, or of text before it."""

    logprobs: dict[str, Any]


class AudioDelta(Event):
    """More audio: base64 (`data`) and the words in it; `id` can be referred to until `expires_at` (Unix seconds)."""

    id: str | None = None
    data: str = ""
    transcript: str = ""
    expires_at: int | None = None


class AudioBytes(Event):
    """More audio of a text that is read aloud, as bytes of a file."""

    data: bytes


class TranscriptTimed(Event):
    """Times of segments and words in a recording, as OpenAI writes them, more of them with each event.

    `language` is the one that was spoken, `duration` the recording's in seconds.
    """

    segments: list[dict[str, Any]] = []
    words: list[dict[str, Any]] = []
    language: str | None = None
    duration: float | None = None


class OpaqueDelta(Event):
    """Fields that only the wire format `dialect` understands: of the message, of the choice, or of the whole reply.

    Fields of the `stream` describe how the answer arrives, in the format's own words; they are no part of the whole
    reply.
    """

    dialect: str
    data: dict[str, Any]
    of: Literal["message", "choice", "reply", "stream"] = "message"


class Finished(Event):
    """An answer is complete. `native` is the provider's own word, `stop_sequence` the one that it was cut before, and
    `explanation` why the provider's filter ended it, in the provider's words.
    """

    reason: FinishReason
    native: str | None = None
    stop_sequence: str | None = None
    explanation: str | None = None


class UsageReported(Event):
    """The provider's counts; a later report replaces an earlier one."""

    usage: Usage


class Waiting(Event):
    """The provider has been silent for a while; the client's connection wants a sign of life."""


class Failed(Event):
    """The answer ends here with an error."""

    error: ApiError


class Summary(Event):
    """The gateway's own last word on a request: what it used and cost, and how it was routed.

    `cost` holds USD by part (`total`, `input`, `output`, `cached_input`, `request`). `duration`, of the whole request,
    and `time_to_first_token`, known of streams alone, are in milliseconds.
    """

    usage: Usage
    cost: dict[str, Decimal]
    metadata: dict[str, Any]
    duration: int = 0
    time_to_first_token: int | None = None


class Choice(msgspec.Struct, kw_only=True):
    """One whole answer. `extra` (of its message) and `choice_extra` (of the choice itself) are keyed by wire format."""

    text: str | None = None
    reasoning: list[ReasoningDelta] = []
    refusal: str | None = None
    tool_calls: list[WholeCall] = []
    images: list[str] = []
    audio: AudioDelta | None = None
    timing: TranscriptTimed | None = None
    annotations: list[dict[str, Any]] = []
    searches: list[str] = []
    logprobs: dict[str, Any] | None = None
    extra: dict[str, dict[str, Any]] = {}
    choice_extra: dict[str, dict[str, Any]] = {}
    finish: FinishReason | None = None
    native_finish: str | None = None
    stop_sequence: str | None = None
    explanation: str | None = None


class WholeCall(msgspec.Struct, kw_only=True):
    """A tool call with all of its arguments."""

    id: str
    name: str
    arguments: str = ""
    extra: dict[str, Any] | None = None


class Reply(msgspec.Struct, kw_only=True):
    """A whole answer, folded from its events. `extra` is keyed by wire format."""

    id: str = ""
    provider: str = ""
    log_id: str = ""
    model: str = ""
    created: int = 0
    choices: list[Choice] = []
    # The results of a request for values (`ResultsGiven`).
    results: list[Any] = []
    usage: Usage | None = None
    extra: dict[str, dict[str, Any]] = {}


# Events that may come before an answer begins.
_BEFORE_CONTENT = frozenset({Started, UsageReported, Logprobs})


def is_content(event: Event) -> bool:
    """Return whether an event is part of the answer itself, or a provider's own block of it that begins."""
    if type(event) is OpaqueDelta:
        return event.of == "stream"
    return type(event) not in _BEFORE_CONTENT


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

"""Canonical answer events: an answer as a sequence of small events while it streams; a whole one is their fold.

The fold is in `fold.py`.
"""

from __future__ import annotations

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

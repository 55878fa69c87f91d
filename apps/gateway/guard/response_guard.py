"""Response guard: run guardrails on an answer as it streams: nothing that a rule finds reaches client or cache.

Text goes on as soon as no rule can find anything in it any more; a tool call once it is whole. Where a rule blocks, the
answer ends as one that a content filter ended.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from apps.gateway.canonical.events import (
    Annotated,
    AudioDelta,
    Event,
    Finished,
    Logprobs,
    OpaqueDelta,
    ReasoningDelta,
    RefusalDelta,
    Searched,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    TranscriptTimed,
    UsageReported,
)
from apps.gateway.guard.json_text import JsonText, Redaction, apply_redactions, encode_json, parse_json_text
from apps.gateway.guard.request_guard import RequestGuard, redactions_of
from apps.guardrails.findings.redaction import is_masked
from apps.guardrails.findings.scan_types import Segment, Verdict
from apps.guardrails.scanning.stream_window import StreamBlocked, StreamWindow
from apps.guardrails.text.scanned_text import ScannedText
from apps.kernel.json_bounds import OutOfBounds

TextEvent = TextDelta | ReasoningDelta | RefusalDelta
ROLE, PLACE = "assistant", "answer"


@dataclass(slots=True)
class _Running:
    """A text under way: all of it as the model wrote it, and its latest event, of which further ones are made."""

    window: StreamWindow
    latest: TextEvent
    written: list[str] = field(default_factory=list)

    @property
    def segments(self) -> list[Segment]:
        """The text so far."""
        return [Segment(ScannedText("".join(self.written)), ROLE, PLACE)]

    @property
    def masked(self) -> bool:
        """Whether something in it was masked."""
        return any(map(is_masked, self.window.findings))


@dataclass(slots=True)
class _Choice:
    """One of the answers: the text that is under way, and what waits for its end."""

    # The text under way.
    running: _Running | None = None
    # Whether something was masked.
    masked: bool = False
    blocked: bool = False
    finished: bool = False
    calls: dict[int, tuple[ToolCallStarted, list[str]]] = field(default_factory=dict)
    logprobs: list[Logprobs] = field(default_factory=list)
    audio_deltas: list[AudioDelta] = field(default_factory=list)
    timings: list[TranscriptTimed] = field(default_factory=list)

    def hold(self, event: AudioDelta | Logprobs | TranscriptTimed) -> None:
        """Keep an event that is sent only at the end."""
        if isinstance(event, AudioDelta):
            self.audio_deltas.append(event)
        elif isinstance(event, TranscriptTimed):
            self.timings.append(event)
        else:
            self.logprobs.append(event)


class ResponseGuard:
    """The guardrails of an answer of so many choices; `whole` where it is not streamed."""

    def __init__(self, guard: RequestGuard, choices: int, *, whole: bool) -> None:
        self._guard = guard
        self._number = choices
        self._whole = whole
        self._choices: dict[int, _Choice] = {}

    def screen(self, events: Iterator[Event]) -> Iterator[Event]:
        """Yield what may pass. Once nothing may any more, the provider is hung up on, unless it has said all."""
        try:
            for event in events:
                if not self._over:
                    yield from self._take(event)
                elif isinstance(event, UsageReported):
                    yield event
                if self._over and not self._whole:
                    return
            for number, choice in self._choices.items():
                yield from self._closing(number, choice, self._end(choice))
        finally:
            if isinstance(events, Generator):
                events.close()

    @property
    def _over(self) -> bool:
        return sum(choice.blocked for choice in self._choices.values()) >= self._number

    def _take(self, event: Event) -> Iterator[Event]:
        match event:
            case TextDelta() | ReasoningDelta() | RefusalDelta() | ToolCallDelta() | ToolCallStarted():
                pass
            case Finished() | AudioDelta() | Logprobs() | TranscriptTimed() | Annotated() | Searched():
                pass
            case OpaqueDelta(of="message" | "choice" | "stream"):
                pass
            case _:
                yield event
                return
        choice = self._choices.setdefault(event.choice, _Choice())
        if not choice.blocked:
            yield from self._closing(event.choice, choice, self._take_of(choice, event))

    def _closing(self, number: int, choice: _Choice, events: Iterator[Event]) -> Iterator[Event]:
        """Yield events, and the end of a choice that was blocked on the way."""
        yield from events
        if choice.blocked and not choice.finished:
            choice.finished = True
            yield Finished(choice=number, reason="content_filter")

    def _take_of(self, choice: _Choice, event: Event) -> Iterator[Event]:
        match event:
            case TextDelta() | ReasoningDelta() | RefusalDelta():
                yield from self._say(choice, event)
            case ToolCallStarted():
                yield from self._pause(choice)
                choice.calls[event.index] = (event, [])
            case ToolCallDelta():
                if event.index in choice.calls:
                    choice.calls[event.index][1].append(event.arguments)
            case AudioDelta() | Logprobs() | TranscriptTimed():
                choice.hold(event)
            case Annotated():
                yield from self._with_json(choice, event, event.annotation)
            case Searched():
                yield from self._search(choice, event)
            case OpaqueDelta():
                if event.of == "stream" and "delta" not in event.data:
                    # Where a block of the provider's own begins or ends, text does, too.
                    yield from self._pause(choice)
                yield from self._with_json(choice, event, event.data)
            case Finished():
                yield from self._end(choice)
                if not choice.blocked:
                    choice.finished = True
                    yield event

    def _say(self, choice: _Choice, event: TextEvent) -> Iterator[Event]:
        """Take in more text; another kind of text than before ends the running one."""
        if choice.running is not None and _kind_of(event) != _kind_of(choice.running.latest):
            yield from self._pause(choice)
        running = choice.running = choice.running or _Running(StreamWindow(self._guard.compiled, PLACE), event)
        running.latest = event
        if event.text:
            running.written.append(event.text)
            yield from self._pass(choice, running, lambda: running.window.feed(event.text))
        if isinstance(event, ReasoningDelta) and (event.signature is not None or event.data is not None):
            # A seal comes behind all that it seals, unless that was changed.
            yield from self._pause(choice)
            if not choice.blocked:
                yield replace(event, text="", signature=None if running.masked else event.signature)
        elif not event.text and not choice.blocked:
            yield event

    def _pause(self, choice: _Choice) -> Iterator[Event]:
        """Let the rest of the text under way pass: it goes on no more."""
        running, choice.running = choice.running, None
        if running is not None and not choice.blocked:
            yield from self._pass(choice, running, running.window.close)
            if not choice.blocked:
                self._note(choice, Verdict(findings=running.window.findings), running.segments)

    def _pass(self, choice: _Choice, running: _Running, look: Callable[[], str]) -> Iterator[Event]:
        """Yield what may go on of a text after another look at it."""
        try:
            text = look()
        except StreamBlocked as blocked:
            self._note(choice, blocked.verdict, running.segments)
            return
        if text:
            bare = {"signature": None, "data": None} if isinstance(running.latest, ReasoningDelta) else {}
            yield replace(running.latest, text=text, **bare)

    def _note(self, choice: _Choice, verdict: Verdict, segments: list[Segment]) -> None:
        self._guard.record_findings(verdict, segments)
        choice.blocked = choice.blocked or verdict.blocked is not None
        choice.masked = choice.masked or any(map(is_masked, verdict.findings))

    def _end(self, choice: _Choice) -> Iterator[Event]:
        """Yield all that was held: the answer has come to its end."""
        if choice.blocked or choice.finished:
            return
        yield from self._pause(choice)
        for started, pieces in choice.calls.values():
            arguments = self._screened(choice, "".join(pieces))
            if choice.blocked:
                return
            yield started
            if arguments:
                yield ToolCallDelta(choice=started.choice, index=started.index, arguments=arguments)
        choice.calls.clear()
        yield from self._sound(choice)
        if choice.timings and not choice.masked:
            # A provider may tell other words with their times than without.
            self._screened(choice, _words_of(choice.timings))
        if choice.blocked:
            return
        # They tell the words of the answer: of one that was masked, only what tells none of them.
        if not choice.masked:
            yield from choice.timings
            yield from choice.logprobs
        else:
            yield from (replace(timing, segments=[], words=[]) for timing in choice.timings)

    def _sound(self, choice: _Choice) -> Iterator[Event]:
        """Yield the audio, unless a rule finds something in its transcript: speech cannot be masked."""
        transcript = "".join(delta.transcript for delta in choice.audio_deltas)
        if self._screened(choice, transcript) != transcript:
            choice.blocked = True
        if not choice.blocked:
            yield from choice.audio_deltas

    def _search(self, choice: _Choice, event: Searched) -> Iterator[Event]:
        """Yield a search, masked: the model wrote what it was for."""
        query = self._screened(choice, event.query)
        if not choice.blocked:
            yield replace(event, query=query)

    def _with_json(self, choice: _Choice, event: Event, value: dict[str, Any]) -> Iterator[Event]:
        """Yield an event that holds a JSON value, which is masked itself."""
        read = JsonText(value)
        read.redact(self._redactions_of(choice, read.text))
        if not choice.blocked:
            yield event

    def _screened(self, choice: _Choice, text: str) -> str:
        """Return a whole text masked, JSON as JSON."""
        value = _json_in(text)
        if value is None:
            return apply_redactions(text, self._redactions_of(choice, text))
        read = JsonText(value)
        redactions = self._redactions_of(choice, read.text)
        return encode_json(read.redact(redactions)) if redactions else text

    def _redactions_of(self, choice: _Choice, text: str) -> list[Redaction]:
        if not text or text.isspace():
            return []
        segments = [Segment(ScannedText(text), ROLE, PLACE)]
        verdict = self._guard.screen_answer(segments)
        self._note(choice, verdict, segments)
        return redactions_of(verdict, segments).get(0, [])


def _words_of(timings: list[TranscriptTimed]) -> str:
    """Return what segments tell, then what words do."""
    segments = [str(segment.get("text") or "") for timing in timings for segment in timing.segments]
    words = [str(word.get("word") or "") for timing in timings for word in timing.words]
    return "\n".join((" ".join(segments), " ".join(words)))


def _json_in(text: str) -> Any:
    """Return the JSON that a text is; None for any other text, and for JSON that holds more than any model writes."""
    try:
        return parse_json_text(text)
    except OutOfBounds:
        return None


def _kind_of(event: TextEvent) -> tuple[type[Event], int]:
    return type(event), event.block if isinstance(event, ReasoningDelta) else 0

"""Answer texts: the texts of an answer that is held back, and how each is changed in its events. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from apps.gateway.canonical.events import (
    AudioDelta,
    Event,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
)
from apps.gateway.guard.json_text import JsonText, Redaction, apply_redactions, encode_json, parse_json_text
from apps.kernel.json_bounds import OutOfBounds

_Key = tuple[str, int, int, int]


class AnswerText(NamedTuple):
    """One text of an answer: running text, thinking, a refusal, a call's arguments, or the words of its audio."""

    place: str
    choice: int
    text: str
    is_maskable: bool
    is_replaceable: bool


class _Run(NamedTuple):
    """The indexes of the events that make one text."""

    key: _Key
    indexes: list[int]


class AnswerTexts:
    """The events of an answer, and the texts in them. Text that another kind of event interrupts is two texts."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._runs: list[_Run] = []
        # The run that goes on, by choice for texts, by call for arguments.
        self._open: dict[_Key, _Run] = {}
        self._latest: dict[int, _Key] = {}
        self._json: dict[int, JsonText] = {}

    def take(self, event: Event) -> None:
        """Take the next event in."""
        key = _key_of(event)
        if key is not None:
            kind, choice = key[0], key[1]
            if kind in ("text", "reasoning", "refusal"):
                if self._latest.get(choice) != key:
                    self._open.pop(key, None)
                self._latest[choice] = key
            run = self._open.get(key)
            if run is None:
                run = self._open[key] = _Run(key, [])
                self._runs.append(run)
            run.indexes.append(len(self.events))
        self.events.append(event)

    def texts(self) -> list[AnswerText]:
        """Return all texts that say something. Their indexes are those that `redact` takes."""
        self._runs = [run for run in self._runs if self._written(run).strip()]
        found = []
        for number, run in enumerate(self._runs):
            text, kind = self._written(run), run.key[0]
            value = _json_in(text) if kind == "arguments" else None
            if value is not None:
                self._json[number] = JsonText(value)
                text = self._json[number].text
            is_maskable = kind != "audio"
            found.append(AnswerText(_place_of(run.key), run.key[1], text, is_maskable, is_maskable and value is None))
        return found

    def redact(self, redactions: Mapping[int, Sequence[Redaction]]) -> None:
        """Change texts by their indexes: the first event of each gets all of it, the others nothing."""
        for number, wanted in redactions.items():
            run = self._runs[number]
            read = self._json.get(number)
            text = apply_redactions(self._written(run), wanted) if read is None else encode_json(read.redact(wanted))
            for index in run.indexes:
                self.events[index] = _with_text(self.events[index], text)
                text = ""

    def _written(self, run: _Run) -> str:
        return "".join(_text_of(self.events[index]) for index in run.indexes)


def _key_of(event: Event) -> _Key | None:
    match event:
        case TextDelta():
            return "text", event.choice, 0, 0
        case ReasoningDelta():
            return "reasoning", event.choice, event.block, int(event.summary)
        case RefusalDelta():
            return "refusal", event.choice, 0, 0
        case ToolCallDelta():
            return "arguments", event.choice, event.index, 0
        case AudioDelta():
            return "audio", event.choice, 0, 0
    return None


def _text_of(event: Event) -> str:
    match event:
        case TextDelta() | ReasoningDelta() | RefusalDelta():
            return event.text
        case ToolCallDelta():
            return event.arguments
        case AudioDelta():
            return event.transcript
    return ""


def _with_text(event: Event, text: str) -> Event:
    """Return the event with another text; thinking loses the signature on the old one."""
    match event:
        case ReasoningDelta():
            return replace(event, text=text, signature=None)
        case TextDelta() | RefusalDelta():
            return replace(event, text=text)
        case ToolCallDelta():
            return replace(event, arguments=text)
    return event


def _place_of(key: _Key) -> str:
    kind, choice, number, _ = key
    return f"choices[{choice}].tool_calls[{number}].arguments" if kind == "arguments" else f"choices[{choice}].{kind}"


def _json_in(text: str) -> Any:
    """Return the JSON that arguments are; None for any other text, and for more than any model writes."""
    try:
        return parse_json_text(text)
    except OutOfBounds:
        return None

"""JSON repair: make a model's almost valid JSON valid; strip code fences and prose around it, close truncated JSON.

Only an answer's text, and only where JSON was asked for and the client wants repair or the gateway itself asked for
JSON in words. The text of a stream is held back for it, with heartbeats meanwhile; everything else passes at once.
Tools' arguments are never touched.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field

from json_repair import repair_json

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import Annotated, Event, Finished, TextDelta, ToolCallStarted, Waiting

PLUGIN = "response-healing"
# Characters beyond which an answer is left as it is.
MAX_LENGTH = 200_000
# The time of a thorough repair grows with the square of the open brackets: it is for answers up to this many characters
# and opening brackets. Longer ones are only cut out of the surrounding text, and closed.
MAX_THOROUGH_LENGTH, MAX_OPEN = 8_000, 100
_FENCE = re.compile(r"```[a-zA-Z]*[ \t]*\r?\n(.*?)(?:```|\Z)", re.DOTALL)
_STRUCTURE = re.compile(r'\\.|["{}\[\]]', re.DOTALL)
_MENDABLE = frozenset({"stop", "length"})


def repair_json_text(text: str) -> str | None:
    """Return the JSON that a text was meant to be; None for one that is valid, or that cannot be put right."""
    if len(text) > MAX_LENGTH or _is_json(text):
        return None
    fenced = _FENCE.search(text)
    inner = fenced[1].strip() if fenced else text.strip()
    if fenced and _is_json(inner):
        return inner
    begins = min((at for at in (inner.find("{"), inner.find("[")) if at >= 0), default=-1)
    if begins < 0:
        return None
    closed = _closed(inner[begins:])
    if _is_json(closed):
        return closed
    if len(inner) > MAX_THOROUGH_LENGTH or sum(map(inner.count, "{[(")) > MAX_OPEN:
        return None
    try:
        repaired_text = repair_json(inner[begins:], ensure_ascii=False, skip_json_loads=True)
    except (ValueError, RecursionError):
        return None
    return (
        repaired_text
        if isinstance(repaired_text, str) and repaired_text.startswith(("{", "[")) and _is_json(repaired_text)
        else None
    )


def _closed(text: str) -> str:
    """Return what stands up to the end of the first value, with everything closed that is still open; read once."""
    waiting: list[str] = []
    quoted = False
    for found in _STRUCTURE.finditer(text):
        mark = found[0]
        if mark == '"':
            quoted = not quoted
        elif quoted or mark.startswith("\\"):
            continue
        elif mark in "{[":
            waiting.append("}" if mark == "{" else "]")
        elif waiting and mark == waiting[-1]:
            waiting.pop()
            if not waiting:
                return text[: found.end()]
    kept = text + '"' if quoted else text.rstrip().rstrip(",")
    return kept + "".join(reversed(waiting))


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return False
    return True


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


@dataclass(slots=True)
class JsonRepair:
    """The repair of one call's answer. `repaired`: whether anything was changed.

    `tick` is the seconds after which a client that hears nothing gets a sign of life.
    """

    chat: Chat
    target: Target
    tick: float
    now: Callable[[], float] = time.monotonic
    repaired: bool = False
    _texts: dict[int, list[Event]] = field(default_factory=dict)
    _called: set[int] = field(default_factory=set)

    def repair_events(self, events: Iterable[Event]) -> Generator[Event, None, None]:
        """Return an answer's events, its text whole and put right before the answer's end."""
        return (event for event in events) if self.chat.response_format is None else self._repair_stream(events)

    def _repair_stream(self, events: Iterable[Event]) -> Generator[Event, None, None]:
        last_event_at = self.now()
        for event in events:
            for one in self._pass_on(event):
                last_event_at = self.now()
                yield one
            if self.now() - last_event_at >= self.tick:
                last_event_at = self.now()
                yield Waiting()
        for choice in sorted(self._texts):
            yield from self._texts[choice]

    def _is_wanted(self) -> bool:
        form = self.chat.response_format
        if form is None or form.kind == "text":
            return False
        return self.target.rewrites.healing or PLUGIN in (self.chat.plugins or ())

    def _pass_on(self, event: Event) -> Iterator[Event]:
        """Yield what can be said now that an event has come."""
        match event:
            case TextDelta() | Annotated() if event.choice not in self._called and self._is_wanted():
                self._texts.setdefault(event.choice, []).append(event)
            case ToolCallStarted() if event.choice not in self._called:
                # Text beside a call is no answer yet.
                self._called.add(event.choice)
                yield from self._texts.pop(event.choice, ())
                yield event
            case Finished():
                yield from self._finish_choice(event)
                yield event
            case _:
                yield event

    def _finish_choice(self, end: Finished) -> Iterator[Event]:
        held = self._texts.pop(end.choice, [])
        text = "".join(event.text for event in held if isinstance(event, TextDelta))
        repaired_text = repair_json_text(text) if text and end.reason in _MENDABLE else None
        if repaired_text is None:
            yield from held
            return
        self.repaired = True
        yield TextDelta(choice=end.choice, text=repaired_text)
        yield from (event for event in held if isinstance(event, Annotated))

"""Restoration: put masked values back into an answer, in place of the placeholders that the model wrote.

It is the last step before the client's format: logs, traces and caches have the answer with placeholders. Texts and
tool arguments go on as they stream; only what may be the beginning of a placeholder waits. Thinking stays as the model
wrote it: its signature would not fit any other text, and clients send it back.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, FunctionTool, Text
from apps.gateway.canonical.events import (
    Annotated,
    Event,
    Failed,
    Finished,
    OpaqueDelta,
    ReasoningDelta,
    RefusalDelta,
    Reply,
    ReplyBuilder,
    Searched,
    Summary,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
)
from apps.gateway.guard.placeholders import PLACEHOLDER, MaskedValue

# A placeholder with the quotes around it, which are escaped in JSON within a string.
_QUOTED: Final = re.compile(rf'(?P<quote>\\*")?(?P<word>{PLACEHOLDER.pattern})(?P<close>(?P=quote))?', re.ASCII)
# The end of a text that may be a placeholder's beginning; with its quotes, where the value may be a number.
_OPEN_END: Final = re.compile(r"\[[A-Z0-9_]*\Z", re.ASCII)
_OPEN_QUOTED_END: Final = re.compile(
    r'(?:\\*"(?:\[[A-Z0-9_]*(?:\](?:\\*(?:"\s{0,64})?)?)?)?|\\+|\[[A-Z0-9_]*)\Z', re.ASCII
)
_COLON: Final = re.compile(r"\s*:")
# The name of a JSON object's member, at the end of a text.
_NAME_BEFORE: Final = re.compile(r'"([^"\\]{1,200})"\s*:\s*\Z')
_LOOK_BACK: Final = 256
# Blocks of thinking, as formats call them: signed, so never changed.
# A tuple: in the JSON of a call `type` may be a list, for which a set raises TypeError.
_THINKING: Final = ("thinking", "redacted_thinking", "reasoning")
_MAX_SCHEMA_DEPTH: Final = 20
# Characters of values that an answer gets back: a model may repeat a placeholder of a long value without end.
MAX_RESTORED: Final = 4_000_000


class RestoredValues:
    """The values of a request's placeholders, as far as they fit into one answer."""

    def __init__(self, values: Mapping[str, MaskedValue]) -> None:
        self._values = values
        self._left = MAX_RESTORED

    def __iter__(self) -> Iterator[tuple[str, MaskedValue]]:
        """Yield all placeholders with their values."""
        yield from self._values.items()

    def take(self, word: str) -> MaskedValue | None:
        """Return the value of a placeholder; None for another word, or where the answer has no room for it."""
        value = self._values.get(word)
        if value is None or len(value.text) > self._left:
            return None
        self._left -= len(value.text)
        return value


class AnswerRestoration:
    """The way back of one answer: `restore` its events; `reply` then has it whole, unless it is streamed."""

    def __init__(self, values: Mapping[str, MaskedValue], chat: Chat) -> None:
        self._values = RestoredValues(values)
        self._schemas = {tool.name: tool.parameters for tool in chat.tools or () if isinstance(tool, FunctionTool)}
        form = chat.response_format
        self._is_json = form is not None and form.kind != "text"
        self._form_types = {} if form is None else _types_in(form.schema)
        self._fold = None if chat.stream else ReplyBuilder()
        # By choice: the latest event of the text under way, and its restoration; the calls by their number.
        self._texts: dict[int, tuple[TextDelta | RefusalDelta, TextRestoration]] = {}
        self._calls: dict[int, dict[int, TextRestoration]] = {}
        self._shifts: dict[int, _Shifts] = {}

    def restore(self, events: Generator[Event, None, None]) -> Generator[Event, None, None]:
        """Yield the events of an answer with the values in them. Closing it closes `events`."""
        try:
            for event in events:
                for restored in self._take(event):
                    if self._fold is not None and not isinstance(restored, Summary | Failed):
                        self._fold.add(restored)
                    yield restored
        finally:
            events.close()

    def reply(self) -> Reply:
        """Return the whole answer; an empty one where it is streamed."""
        return (self._fold or ReplyBuilder()).reply()

    def _take(self, event: Event) -> Iterator[Event]:
        match event:
            case TextDelta() | RefusalDelta():
                yield from self._say(event)
                return
            case ToolCallDelta():
                call = self._calls.get(event.choice, {}).get(event.index)
                arguments = event.arguments if call is None else call.feed(event.arguments)
                if arguments:
                    yield event if arguments == event.arguments else replace(event, arguments=arguments)
                return
            case ReasoningDelta() | Finished() | ToolCallStarted() | Annotated() | Searched():
                yield from self._close(event.choice)
            case OpaqueDelta() if event.of != "reply":
                yield from self._close(event.choice)
            case Summary() | Failed():
                for choice in {**self._texts, **self._calls}:
                    yield from self._close(choice)
        yield self._restored(event)

    def _restored(self, event: Event) -> Event:
        """Return an event that is no piece of a text with the values in it."""
        match event:
            case ToolCallStarted():
                types = _types_in(self._schemas.get(event.name))
                call = TextRestoration(self._values, is_json=True, types=types)
                self._calls.setdefault(event.choice, {})[event.index] = call
            case Annotated():
                annotation = restore_json(event.annotation, self._values)
                if (shifts := self._shifts.get(event.choice)) is not None:
                    shifts.move_citation(annotation)
                return replace(event, annotation=annotation)
            case Searched():
                return replace(event, query=restore_text(event.query, self._values))
            case OpaqueDelta():
                return replace(event, data=restore_json(event.data, self._values))
        return event

    def _say(self, event: TextDelta | RefusalDelta) -> Iterator[Event]:
        """Yield what may go on of a text; another kind of text than before ends the running one."""
        latest, running = self._texts.get(event.choice, (event, None))
        if running is None or type(latest) is not type(event):
            yield from self._close(event.choice)
            is_answer = isinstance(event, TextDelta)
            running = TextRestoration(
                self._values,
                is_json=self._is_json and is_answer,
                types=self._form_types if is_answer else {},
                shifts=self._shifts.setdefault(event.choice, _Shifts()) if is_answer else None,
            )
        self._texts[event.choice] = event, running
        text = running.feed(event.text)
        if text or not event.text:
            yield event if text == event.text else replace(event, text=text)

    def _close(self, choice: int) -> Iterator[Event]:
        """Yield the held-back end of a choice's text and arguments."""
        running = self._texts.pop(choice, None)
        if running is not None and (rest := running[1].close()):
            yield replace(running[0], text=rest)
        for index, call in self._calls.get(choice, {}).items():
            if rest := call.close():
                yield ToolCallDelta(choice=choice, index=index, arguments=rest)


class _Shifts:
    """How far values moved the text of an answer behind them: a place in the model's text, and the characters more."""

    def __init__(self) -> None:
        self.length = 0
        self._moves: list[tuple[int, int]] = []

    def add(self, end: int, more: int) -> None:
        """Note a placeholder that ends there, counted from the text written last, and how much longer its value is."""
        self._moves.append((self.length + end, more))

    def move_citation(self, annotation: dict[str, Any]) -> None:
        """Change the places of a citation to those in the restored text."""
        cited = annotation.get("url_citation")
        if not isinstance(cited, dict):
            return
        for name in ("start_index", "end_index"):
            place = cited.get(name)
            if isinstance(place, int) and not isinstance(place, bool):
                cited[name] = place + sum(more for end, more in self._moves if end <= place)


class TextRestoration:
    """One text with placeholders: feed it what arrives, pass on what it returns, close it at the end.

    In JSON (`is_json`) values are escaped, and a string that is nothing but a placeholder becomes the number that it
    stands for: where that was one, or where `types` says that the member of this name is one.
    """

    def __init__(
        self,
        values: RestoredValues,
        *,
        is_json: bool = False,
        types: Mapping[str, str] | None = None,
        shifts: _Shifts | None = None,
    ) -> None:
        self._values, self._is_json, self._types, self._shifts = values, is_json, types or {}, shifts
        numeric = any(one.is_number or (self._types and one.is_numeric) for _, one in values)
        self._open_end = _OPEN_QUOTED_END if numeric else _OPEN_END
        self._held = ""
        # The end of the text so far, as the model wrote it.
        self._before = ""

    def feed(self, text: str) -> str:
        """Take what arrived and return what may go on."""
        text = self._held + text
        cut = self._cut_of(text)
        self._held = text[cut:]
        return self._write(text[:cut])

    def close(self) -> str:
        """Return the rest."""
        text, self._held = self._held, ""
        return self._write(text)

    def _cut_of(self, text: str) -> int:
        """Return where the end begins that may be a placeholder's beginning."""
        found = self._open_end.search(text, max(0, len(text) - _LOOK_BACK))
        if found is None:
            return len(text)
        bracket = text.find("[", found.start())
        if bracket < 0:
            return found.start()
        beginning = "".join(text[bracket:].partition("]")[:2])
        return found.start() if any(word.startswith(beginning) for word, _ in self._values) else len(text)

    def _write(self, text: str) -> str:
        if not text:
            return ""
        pieces, at = [], 0
        for found in _QUOTED.finditer(text):
            value = self._values.take(found["word"])
            if value is not None:
                written = self._value_of(value, found, text)
                pieces += [text[at : found.start()], written]
                at = found.end()
                if self._shifts is not None:
                    self._shifts.add(at, len(written) - len(found[0]))
        if self._shifts is not None:
            self._shifts.length += len(text)
        self._before = (self._before + text)[-_LOOK_BACK:]
        return "".join([*pieces, text[at:]])

    def _value_of(self, value: MaskedValue, found: re.Match[str], text: str) -> str:
        quote, close = found["quote"] or "", found["close"] or ""
        if quote and close and self._is_number(value, quote, found, text):
            return value.text
        written = value.text
        if self._is_json:
            # Within a string of JSON that is a string of JSON itself, twice.
            for _ in range(2 if quote.startswith("\\") else 1):
                written = msgspec.json.encode(written).decode()[1:-1]
        return f"{quote}{written}{close}"

    def _is_number(self, value: MaskedValue, quote: str, found: re.Match[str], text: str) -> bool:
        """Return whether a string that is nothing but a placeholder is to be a number; a name never is."""
        if not value.is_numeric or _COLON.match(text, found.end()):
            return False
        if self._types and quote == '"':
            name = _NAME_BEFORE.search((self._before + text[: found.start()])[-_LOOK_BACK:])
            kind = self._types.get(name[1]) if name is not None else None
            if kind is not None:
                return kind == "number"
        return value.is_number


def restore_prompts(chat: Chat, values: Mapping[str, MaskedValue]) -> Chat:
    """Return the chat that a client reads its own prompts of, in front of the answers (`echo`)."""
    restored = RestoredValues(values)
    messages = [
        replace(
            message,
            parts=[
                replace(part, text=restore_text(part.text, restored)) if isinstance(part, Text) else part
                for part in message.parts
            ],
        )
        for message in chat.messages
    ]
    return replace(chat, messages=messages)


def restore_text(text: str, values: RestoredValues) -> str:
    """Return a whole text with the values in it."""

    def value_of(found: re.Match[str]) -> str:
        masked = values.take(found[0])
        return found[0] if masked is None else masked.text

    return PLACEHOLDER.sub(value_of, text)


def restore_json(value: Any, values: RestoredValues) -> Any:
    """Return a JSON value with the values in it, which is a new one; blocks of thinking stay as they are."""
    if isinstance(value, str):
        masked = values.take(value)
        if masked is None:
            return restore_text(value, values)
        return msgspec.json.decode(masked.text) if masked.is_number else masked.text
    if isinstance(value, list):
        return [restore_json(one, values) for one in value]
    if isinstance(value, dict):
        if value.get("type") in _THINKING or value.get("thought") is True:
            return value
        return {name: restore_json(one, values) for name, one in value.items()}
    return value


def _types_in(schema: Any) -> dict[str, str]:
    """Return the members of a JSON schema, at any depth, that are a `number` or a `string` wherever they occur."""
    types: dict[str, str] = {}
    pending: list[tuple[Any, int]] = [(schema, 0)]
    while pending:
        node, depth = pending.pop()
        if depth > _MAX_SCHEMA_DEPTH:
            continue
        inner: Iterable[Any] = ()
        if isinstance(node, list):
            inner = node
        elif isinstance(node, dict):
            inner = node.values()
            members = node.get("properties")
            for name, member in members.items() if isinstance(members, dict) else ():
                kind = _kind_of(member)
                types[name] = kind if types.get(name, kind) == kind else ""
        pending.extend((one, depth + 1) for one in inner)
    return {name: kind for name, kind in types.items() if kind}


def _kind_of(member: Any) -> str:
    """Return whether a schema takes numbers only, or strings only; empty otherwise."""
    stated = member.get("type") if isinstance(member, dict) else None
    kinds = {one for one in (stated if isinstance(stated, list) else [stated]) if one != "null"}
    if kinds and kinds <= {"integer", "number"}:
        return "number"
    return "string" if kinds == {"string"} else ""

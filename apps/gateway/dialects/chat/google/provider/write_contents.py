"""Google generateContent, provider side: writes `systemInstruction` and `contents`.

Knows turns: neighbours of one role are one turn, what tools answered stands first in its turn and in the order of the
calls. Instructions in mid-conversation stay where they are, as marked text of the user's. Parts are written in
`write_parts.py`. Must never know a model by name.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import msgspec

from apps.gateway.canonical.chat import Message, Part, Refusal, Text, ToolCall, ToolResult
from apps.gateway.dialects.adapting.signed_call_ids import split_signature
from apps.gateway.dialects.chat.google.provider.function_names import write_name
from apps.gateway.dialects.chat.google.provider.passthrough import merged
from apps.gateway.dialects.chat.google.provider.write_parts import write_answer, write_part
from apps.gateway.dialects.chat.google.shared.wire import Record
from apps.gateway.dialects.reading.fields import BOUNDS
from apps.kernel.errors import InvalidRequest
from apps.kernel.json_bounds import decode_text_within


def write_contents(messages: list[Message], *, signed: bool, ours: bool = False) -> tuple[list[Record], list[Record]]:
    """Return the instructions that the conversation begins with, as parts, and its turns.

    `signed` tells whether calls need a signature, `ours` whether the client speaks this format. A conversation of
    nothing but instructions is said by the user. Raises InvalidRequest for what cannot be said.
    """
    begins = next((at for at, it in enumerate(messages) if it.role not in ("system", "developer")), len(messages))
    instructions = [part for message in messages[:begins] for part in _instruction(message)]
    turns = _Turns(signed=signed, ours=ours)
    for message in messages[begins:]:
        turns.add(message)
    contents = turns.written()
    if not contents:
        return [], [{"role": "user", "parts": instructions or [{"text": "."}]}]
    return instructions, contents


def _instruction(message: Message) -> list[Record]:
    if not all(isinstance(part, Text) for part in message.parts):
        raise InvalidRequest(
            "Instructions can only be text for this model's provider", code="unsupported_feature", param="messages"
        )
    return [{"text": part.text} for part in message.parts if isinstance(part, Text) and part.text]


class _Turns:
    """The turns so far, and which calls were made."""

    def __init__(self, *, signed: bool, ours: bool) -> None:
        self._signed = signed
        self._ours = ours
        self._turns: list[_Turn] = []
        # By id, which clients may use anew in each turn: the place among all calls, and the name.
        self._calls: dict[str, tuple[int, str]] = {}
        self._places = count()

    def add(self, message: Message) -> None:
        """Take in one message."""
        turn = self._turn("model" if message.role == "assistant" else "user")
        if message.role == "assistant":
            turn.parts.extend(write_answer(message.parts, signed=self._signed, ours=self._ours))
            for part in message.parts:
                if isinstance(part, ToolCall):
                    self._calls[split_signature(part.id)[0]] = next(self._places), part.name
        elif message.role in ("system", "developer"):
            if text := "\n".join(part["text"] for part in _instruction(message)):
                turn.parts.append({"text": f"<system>\n{text}\n</system>"})
        else:
            for part in message.parts:
                self._add_part(part, turn)

    def written(self) -> list[Record]:
        """Return all turns that say anything."""
        return [wire for turn in self._turns if (wire := turn.written())["parts"]]

    def _turn(self, role: str) -> _Turn:
        """Return the turn that a role speaks in now; one in which nothing was said does not come between."""
        if self._turns and self._turns[-1].role != role and self._turns[-1].silent:
            self._turns.pop()
        if not self._turns or self._turns[-1].role != role:
            self._turns.append(_Turn(role))
        return self._turns[-1]

    def _add_part(self, part: Part, turn: _Turn) -> None:
        if isinstance(part, ToolResult):
            media = [write_part(it, ours=self._ours) for it in part.parts if not isinstance(it, Text | Refusal)]
            # What is not text stands beside, unless the client put it into the result: not every model looks there.
            turn.results.append(self._result(part, media if self._ours else []))
            turn.parts.extend([] if self._ours else media)
        elif not isinstance(part, Text) or part.text:
            turn.parts.append(write_part(part, ours=self._ours))

    def _result(self, result: ToolResult, media: list[Record]) -> tuple[int, Record]:
        """Return a result and its call's place. Raises InvalidRequest where nobody says which function answered."""
        call_id = split_signature(result.call_id)[0]
        place, name = self._calls.get(call_id, (next(self._places), result.name))
        if name is None:
            raise InvalidRequest(f"messages: no call has the id {call_id[:64]} that a tool answers", param="messages")
        answer: Record = {"id": call_id, "name": write_name(name), "response": _response(result, ours=self._ours)}
        wire = {"functionResponse": {**answer, "parts": media} if media else answer}
        return place, merged(wire, result.extra) if self._ours and result.extra else wire


def _response(result: ToolResult, *, ours: bool) -> Any:
    """Return what a function answered: the object that a client of this format sent, in every other case the text,
    because inside of an object Google follows a `$ref`."""
    texts = [part.text for part in result.parts if isinstance(part, Text | Refusal)]
    text = "\n".join(texts)
    field = result.json_field
    if not ours or field is None or not _is_json(text, dict if field == "" else object):
        return {"error" if result.is_error else "output": text}
    # The bytes keep every digit of its numbers.
    said = msgspec.Raw(text.encode())
    return {field: said} if field else said


def _is_json(text: str, kind: type) -> bool:
    """Return whether a text is a JSON value of a kind: what a guardrail has changed may be none any more."""
    try:
        return isinstance(decode_text_within(text, BOUNDS), kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False


class _Turn:
    """One turn: what tools answered, and everything else that is said in it."""

    def __init__(self, role: str) -> None:
        self.role = role
        self.results: list[tuple[int, Record]] = []
        self.parts: list[Record] = []

    @property
    def silent(self) -> bool:
        """Whether nothing was said in it."""
        return not self.results and not self.parts

    def written(self) -> Record:
        """Return the turn, results first and in the order of the calls."""
        results = [wire for _, wire in sorted(self.results, key=lambda result: result[0])]
        return {"role": self.role, "parts": [*results, *self.parts]}

"""Google generateContent, provider side: writes `systemInstruction` and `contents`.

Knows turns: neighbours of one role are one turn, what tools answered stands first in its turn and in the order of the
calls. Instructions in mid-conversation stay where they are, as marked text of the user's. Parts are written in
`write_parts.py`. Must never know a model by name.
"""

from __future__ import annotations

from itertools import count

from apps.gateway.canonical.chat import Message, Part, Refusal, Text, ToolCall, ToolResult
from apps.gateway.dialects.google.provider.function_names import write_name
from apps.gateway.dialects.google.provider.passthrough import merged
from apps.gateway.dialects.google.provider.write_parts import write_answer, write_part
from apps.gateway.dialects.google.shared.wire import Record
from apps.gateway.dialects.signed_call_ids import split_signature
from apps.kernel.errors import InvalidRequest


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
            turn.results.append(self._result(part))
            # What is not text stands beside: the field for it inside of a result is not understood by every model.
            turn.parts.extend(
                write_part(inner, ours=self._ours) for inner in part.parts if not isinstance(inner, Text | Refusal)
            )
        elif not isinstance(part, Text) or part.text:
            turn.parts.append(write_part(part, ours=self._ours))

    def _result(self, result: ToolResult) -> tuple[int, Record]:
        """Return a result and its call's place. Raises InvalidRequest where nobody says which function answered."""
        call_id = split_signature(result.call_id)[0]
        place, name = self._calls.get(call_id, (next(self._places), result.name))
        if name is None:
            raise InvalidRequest(f"messages: no call has the id {call_id[:64]} that a tool answers", param="messages")
        text = "\n".join(part.text for part in result.parts if isinstance(part, Text | Refusal))
        # Always as text: inside of an object, Google follows a `$ref`.
        said = {"error" if result.is_error else "output": text}
        wire = {"functionResponse": {"id": call_id, "name": write_name(name), "response": said}}
        return place, merged(wire, result.extra) if self._ours and result.extra else wire


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

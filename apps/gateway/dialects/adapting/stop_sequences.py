"""Stop sequences emulated: an answer is cut before the first of them that its text comes to, wherever its pieces
end.

Text that may still become one is held back (Aho-Corasick), so that no part of it is ever passed on. Works on events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, StopEmulation, Target
from apps.gateway.canonical.events import (
    Event,
    Failed,
    Finished,
    OpaqueDelta,
    Started,
    TextDelta,
    UsageReported,
    Waiting,
)
from apps.gateway.dialects.adapting.unsupported_fields import unsupported_feature

# Characters of all sequences together: more is no sequence that a model is stopped by.
MAX_CHARACTERS = 20_000
# Events that belong to no choice pass after the cut.
_OF_ALL = (Started, UsageReported, Waiting, Failed)


def emulate_stop_sequences(chat: Chat, target: Target) -> None:
    """Have the answer cut here, as the provider takes no stop sequences. Raises InvalidRequest for too long ones."""
    sequences = tuple(dict.fromkeys(filter(None, chat.stop or ())))
    if not sequences:
        return
    if sum(map(len, sequences)) > MAX_CHARACTERS:
        message = f"stop sequences have at most {MAX_CHARACTERS} characters together for this model's provider"
        raise unsupported_feature(chat, "stop", message)
    target.rewrites.stop = StopEmulation(sequences, streamed=chat.stream, choices=chat.n or 1)


def fit_stop_sequences(chat: Chat, target: Target, most: int) -> list[str] | None:
    """Return the stop sequences to send to a provider that takes so many at most: where there are more, the answer
    is cut here before any of them. Raises InvalidRequest for too long ones."""
    if chat.stop is None or len(chat.stop) <= most:
        return chat.stop
    emulate_stop_sequences(chat, target)
    return chat.stop[:most]


def cut_at_stop(events: Iterable[Event], stop: StopEmulation) -> Iterator[Event]:
    """Yield events up to the first stop sequence of each choice. A stream ends once all of its choices have."""
    automaton = _Automaton(stop.sequences)
    cuts: dict[int, _Cut] = {}
    for event in events:
        if isinstance(event, _OF_ALL) or (isinstance(event, OpaqueDelta) and event.of == "reply"):
            yield event
            continue
        cut = cuts.get(event.choice)
        if cut is None:
            cut = cuts[event.choice] = _Cut(automaton)
        if cut.over:
            continue
        yield from cut.read(event)
        if stop.streamed and sum(one.over for one in cuts.values()) == stop.choices and cut.matched:
            return


class _Cut:
    """One choice: its position in the sequences, and the text held back until a match is decided."""

    def __init__(self, automaton: _Automaton) -> None:
        self.over = False
        self.matched = False
        self._automaton = automaton
        self._state = 0
        self._held = ""
        # Events after the text that is held back.
        self._behind: list[Event] = []

    def read(self, event: Event) -> Iterator[Event]:
        """Yield what may be passed on now."""
        if isinstance(event, TextDelta):
            yield from self._read_text(event)
        elif isinstance(event, Finished):
            self.over = True
            yield from self._flush(event.choice)
            yield event
        elif self._held:
            self._behind.append(event)
        else:
            yield event

    def _read_text(self, event: TextDelta) -> Iterator[Event]:
        held, automaton, state = self._held, self._automaton, self._state
        whole = held + event.text
        for position, character in enumerate(event.text, start=len(held) + 1):
            state = automaton.step(state, character)
            if (length := automaton.ends[state]) > 0:
                yield from self._release(event, whole, position - length)
                found = whole[position - length : position]
                self.over = self.matched = True
                yield Finished(choice=event.choice, reason="stop", native="stop_sequence", stop_sequence=found)
                return
        self._state = state
        yield from self._release(event, whole, len(whole) - automaton.depths[state])

    def _release(self, event: TextDelta, whole: str, until: int) -> Iterator[Event]:
        """Yield the text up to that position, with the events behind the released text."""
        before = min(until, len(self._held))
        if before:
            yield replace(event, text=whole[:before])
        if until >= len(self._held):
            yield from self._behind
            self._behind = []
            if until > before:
                yield replace(event, text=whole[before:until])
        self._held = whole[until:]

    def _flush(self, choice: int) -> Iterator[Event]:
        if self._held:
            yield TextDelta(choice=choice, text=self._held)
        yield from self._behind


class _Automaton:
    """The sequences as states: of each how long the sequence is that ends there, and how much of one is behind it."""

    def __init__(self, sequences: Sequence[str]) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._fail = [0]
        self.ends = [0]
        self.depths = [0]
        for sequence in sequences:
            self._add(sequence)
        self._link()

    def step(self, state: int, character: str) -> int:
        """Return the state after one more character."""
        while character not in self._next[state]:
            if state == 0:
                return 0
            state = self._fail[state]
        return self._next[state][character]

    def _add(self, sequence: str) -> None:
        state = 0
        for character in sequence:
            if character not in self._next[state]:
                self._next[state][character] = len(self._next)
                self._next.append({})
                self._fail.append(0)
                self.ends.append(0)
                self.depths.append(self.depths[state] + 1)
            state = self._next[state][character]
        self.ends[state] = len(sequence)

    def _link(self) -> None:
        """Say where each state goes on when its sequence does not, shorter ones first."""
        pending = deque(self._next[0].values())
        while pending:
            state = pending.popleft()
            for character, inner in self._next[state].items():
                self._fail[inner] = self.step(self._fail[state], character)
                # The longest that ends here begins first.
                self.ends[inner] = self.ends[inner] or self.ends[self._fail[inner]]
                pending.append(inner)

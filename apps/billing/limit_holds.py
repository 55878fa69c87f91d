"""Holds of limits in the forms that the scripts of reservations take, prepared once for all requests alike.

A request holds and counts the same amount for all limits that count the same: its measures are computed once, and
texts of JSON are filled in with them, whatever the number of limits. The scripts get the limits as one text: a client
packs each argument by itself, and the store takes each apart by itself, which takes time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final

import msgspec

# Measures of a request: the amount to hold, that for a token of the prompt, and that for one of the answer. USD are
# held as the amount of the reservation.
USD: Final = "usd"
_HELD: Final[Mapping[str, tuple[int, int, int]]] = MappingProxyType(
    {"requests": (1, 0, 0), "tokens": (0, 1, 1), "input_tokens": (0, 1, 0), "output_tokens": (0, 0, 1)}
)
# Prefix of the measure of a limit that does not count the request after all: another model or provider answered.
UNCOUNTED: Final = "-"
_NOTHING: Final = MappingProxyType({UNCOUNTED + measure: 0 for measure in (USD, *_HELD)})
_NONE: Final[Any] = ()


class LimitHold(msgspec.Struct, frozen=True):
    """A limit to hold on: its counter (Redis key), the most that it may reach, in units, and what it counts.

    One that does not refuse is held on, too.
    """

    counter: str
    ceiling: int
    measure: str
    # The amount that is reported once it is passed; None: `ceiling`, which refuses.
    warns_at: int | None = None
    # Whether it has to cover all that the request wants; else a part of it may be granted.
    is_whole: bool = False
    # Redis keys of counters whose amounts count beside its own; nothing is held on them.
    older: tuple[str, ...] = ()

    @property
    def terms(self) -> tuple[object, ...]:
        """Its part of the text for the scripts of reservations (`_CHECKS_LUA`); False stands for nothing."""
        base, of_prompt, each = _HELD.get(self.measure, (False, 0, 0))
        warns_at = False if self.warns_at is None else self.warns_at
        return self.counter, self.ceiling, base, of_prompt, each, warns_at, self.is_whole, *self.older


class MeasuredUse(msgspec.Struct, frozen=True):
    """The amounts that a request adds to the limits it is held on, by measure, and which limits count it.

    `measures` are those of limits that count no money, with `UNCOUNTED` before that of one which does not count it.
    """

    amounts: Mapping[str, int]
    measures: tuple[str, ...]
    # The Redis keys of counters of money that count it.
    money: tuple[str, ...]


class LimitHolds(msgspec.Struct, frozen=True):
    """Limits to hold on. `money` are the Redis keys of counters of USD; `measures` are what the others count."""

    money: tuple[str, ...]
    measures: tuple[str, ...]
    # The terms of each limit, as JSON.
    terms: str
    # Whether any of them counts tokens of answers.
    has_answers: bool
    # The most that each counter may reach, by its Redis key, and the older counters of those that have some.
    ceilings: Mapping[str, int]
    older: Mapping[str, tuple[str, ...]]
    # Texts of a note's `counts`, to fill in with amounts: of a request in progress, and of one that is recorded; and
    # JSON of counters, each with how much more it holds.
    held: bytes
    settled: bytes
    more: str

    @classmethod
    def prepare(cls, limits: Iterable[LimitHold]) -> LimitHolds:
        """Return limits in the forms that the scripts take, in this order."""
        every = tuple(limits)
        others = tuple(one for one in every if one.measure != USD)
        return cls(
            money=tuple(one.counter for one in every if one.measure == USD),
            measures=tuple(one.measure for one in others),
            terms=msgspec.json.encode([one.terms for one in every]).decode(),
            has_answers=any(_HELD[one.measure][2] for one in others),
            ceilings={one.counter: one.ceiling for one in every},
            older={one.counter: one.older for one in every if one.older},
            held=_template((one.counter, _HELD[one.measure][2]) for one in others),
            settled=_template((one.counter, 0) for one in others),
            more="[" + ",".join([_literal(one.counter) + ',"%d"' for one in others]) + "]",
        )

    def counts_for(self, prompt: int) -> Any:
        """Return a note's `counts` for a request in progress with a prompt of so many tokens."""
        return msgspec.Raw(self.held % pick(self.measures)(_measures_held(prompt, 0))) if self.measures else _NONE


class SettledCounts(msgspec.Struct, frozen=True):
    """The counts of a recorded request: a note's `counts`, and JSON of counters, each with how much more it holds."""

    note: Any = _NONE
    more: str = ""


_NO_COUNTS: Final = SettledCounts()


def settle_counts(holds: LimitHolds, use: MeasuredUse | None, prompt: int, granted: int) -> SettledCounts:
    """Return what a request holds of limits that count no money once its use is known; without one it counts nothing.

    `prompt` and `granted` are the tokens of its prompt and of its answer that it has held.
    """
    if not holds.measures:
        return _NO_COUNTS
    if use is None:
        use = MeasuredUse(dict.fromkeys(_HELD, 0), tuple([UNCOUNTED + one for one in holds.measures]), ())
    amounts = use.amounts
    more = {
        "requests": amounts["requests"] - 1,
        "tokens": amounts["tokens"] - prompt - granted,
        "input_tokens": amounts["input_tokens"] - prompt,
        "output_tokens": amounts["output_tokens"] - granted,
    }
    if use.measures != holds.measures:
        amounts = {**amounts, **_NOTHING}
        more |= {UNCOUNTED + measure: -amount for measure, amount in _measures_held(prompt, granted).items()}
    picked = pick(use.measures)
    return SettledCounts(msgspec.Raw(holds.settled % picked(amounts)), holds.more % picked(more))


@lru_cache(maxsize=1024)
def pick(names: tuple[str, ...]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Return a function that picks the values of some names, in this order, without a call of Python for each."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda values: tuple([values[name] for name in names])


def _measures_held(prompt: int, granted: int) -> dict[str, int]:
    return {"requests": 1, "tokens": prompt + granted, "input_tokens": prompt, "output_tokens": granted}


def _template(counts: Iterable[tuple[str, int]]) -> bytes:
    """Return the JSON of counts with a place for the amount of each."""
    places = [f"[{_literal(name)},%d,{each}]" for name, each in counts]
    return f"[{','.join(places)}]".encode()


def _literal(name: str) -> str:
    """Return a Redis key as JSON, in a template."""
    return msgspec.json.encode(name).decode().replace("%", "%%")

"""Holds of limits in the forms that the scripts of reservations take, prepared once for all requests alike.

A worker states the measures of a request, whatever the number of limits. The scripts know from the prepared texts which
counter takes which, and write the counters into the note. They get the limits as one text: a client packs each argument
by itself, and the store takes each apart by itself, which takes time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from apps.billing import balances

# Measures have a letter each in scripts, their first: `usd`, `requests`, `tokens`, `input_tokens`, `output_tokens`.
USD: Final = "usd"
_OF_ANSWERS: Final = frozenset({"tokens", "output_tokens"})
# The letter of a limit that does not count the request after all: another model or provider answered.
_UNCOUNTED: Final = "-"


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


class LimitHolds(msgspec.Struct, frozen=True):
    """Limits to hold on. `money` are the Redis keys of counters of USD; `key_ceiling` is the most that the key's usage
    may reach by its own limit, which is the first, None without one."""

    money: tuple[str, ...]
    key_ceiling: int | None
    # The fields that scripts read, as JSON (`_write_terms`).
    terms: str
    # Whether any of them counts something else than money, and whether any counts tokens of answers.
    has_counts: bool
    has_answers: bool
    # The most that each counter may reach, by its Redis key, and the older counters of those that have some.
    ceilings: Mapping[str, int]
    older: Mapping[str, tuple[str, ...]]

    @classmethod
    def prepare(cls, limits: Iterable[LimitHold]) -> LimitHolds:
        """Return limits in the forms that the scripts take, in this order."""
        every = tuple(limits)
        others = [one.measure for one in every if one.measure != USD]
        is_of_key = bool(every) and balances.USAGE in every[0].counter
        return cls(
            key_ceiling=every[0].ceiling if is_of_key else None,
            money=tuple(one.counter for one in every if one.measure == USD),
            terms=_write_terms(every),
            has_counts=bool(others),
            has_answers=not _OF_ANSWERS.isdisjoint(others),
            ceilings={one.counter: one.ceiling for one in every},
            older={one.counter: one.older for one in every if one.older},
        )


def _write_terms(every: Sequence[LimitHold]) -> str:
    """Return limits as the scripts of reservations read them (`_CHECKS_LUA`)."""
    terms: dict[str, object] = {
        "counters": [one.counter for one in every],
        "ceilings": [one.ceiling for one in every],
        "letters": [one.measure[0] for one in every],
    }
    # Few have these.
    if any(one.warns_at is not None for one in every):
        terms["warns_at"] = [False if one.warns_at is None else one.warns_at for one in every]
    if any(one.is_whole for one in every):
        terms["wholes"] = [one.is_whole for one in every]
    if older := [(place, name) for place, one in enumerate(every, 1) for name in one.older]:
        terms["older"] = older
    return msgspec.json.encode(terms).decode()


class MeasuredUse(msgspec.Struct, frozen=True):
    """The use that a request makes of the limits it is held on.

    `letters` has one for each limit that counts no money, in their order (`letters_of`), and `money` the Redis keys of
    counters of USD that count it.
    """

    letters: str
    money: tuple[str, ...]
    input_tokens: int
    output_tokens: int


# That of a request that no limit counts.
NO_USE: Final = MeasuredUse("", (), 0, 0)


def letters_of(measures: Iterable[tuple[str, bool]]) -> str:
    """Return a letter for each measure of limits, except USD: its first where the limit counts the request."""
    return "".join([one[0] if is_counting else _UNCOUNTED for one, is_counting in measures if one != USD])

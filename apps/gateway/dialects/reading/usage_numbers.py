"""Numbers of usage: counts that providers report, read tolerantly; amounts of money, written with all their digits.

An invalid count never costs the answer beside it.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import msgspec

# No request has a billion tokens, or units; a count beyond is a provider's bug.
_MAX_COUNT: Final = 10**9
# xAI's unit of money, in USD, and what no answer costs more than.
_TICK: Final = Decimal("1e-10")
_MAX_TICKS: Final = 100 * 10**10


def read_count(value: Any) -> int:
    """Return a count; 0 for invalid values: null, text, a boolean, a negative or an implausibly large number."""
    if type(value) is int and 0 <= value <= _MAX_COUNT:
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT:
        return int(value)
    return 0


def has_odd_count(record: Any, *names: str, main: tuple[str, ...] = ()) -> bool:
    """Return whether something under one of these names is no count: text, a boolean, a fraction, less than nothing,
    more than can be. Null says that nothing was counted, except for what always is (`main`)."""
    if not isinstance(record, dict):
        return False
    for name in (*main, *names):
        value = record.get(name, 0)
        if type(value) is int and 0 <= value <= _MAX_COUNT:
            continue
        if value is None and name not in main:
            continue
        if type(value) is float and value.is_integer() and 0 <= value <= _MAX_COUNT:
            continue
        return True
    return False


def count_at(answer: Any, *path: str) -> int:
    """Return the count at a path of names through objects; 0 where there is none."""
    for name in path:
        answer = answer.get(name) if isinstance(answer, dict) else None
    return read_count(answer)


def read_ticks(reported: dict[str, Any]) -> Decimal | None:
    """Return what xAI says in its usage that an answer costs, in USD; None where it does not say, or what cannot be."""
    ticks = reported.get("cost_in_usd_ticks")
    return ticks * _TICK if type(ticks) is int and 0 <= ticks <= _MAX_TICKS else None


_ZERO = msgspec.Raw(b"0")


def exact_number(amount: Decimal) -> msgspec.Raw:
    """Return an amount as a JSON number with all of its digits and no exponent."""
    if not amount:
        return _ZERO
    text = format(amount, "f")
    return msgspec.Raw((text.rstrip("0").rstrip(".") if "." in text else text).encode() or b"0")

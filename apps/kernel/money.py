"""Money: exact decimal amounts in USD with twelve decimals.

A price has at most six decimals per million tokens, so a token costs a whole number of 1e-12 USD: sums never round.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal
from math import ceil, floor
from typing import TYPE_CHECKING, Any

from django.db import models

ZERO = Decimal(0)
DECIMAL_PLACES = 12
_STEP = Decimal(1).scaleb(-DECIMAL_PLACES)
NANO = 10**9
MAX_DIGITS = 24
# The maximum of a column: a step below a trillion.
LARGEST = Decimal(10) ** (MAX_DIGITS - DECIMAL_PLACES) - _STEP
# Wide enough for amounts beyond any column: rounding an absurd amount must not raise.
_WIDE = Context(prec=80)


def exact(amount: Decimal) -> Decimal:
    """Return `amount` at the ledger's resolution (1e-12 USD), half to even."""
    return amount.quantize(_STEP, ROUND_HALF_EVEN, _WIDE)


def storable(amount: Decimal) -> Decimal:
    """Return the nearest amount that a column can hold; 0 for NaN."""
    if not amount.is_finite():
        return ZERO
    return exact(min(max(amount, -LARGEST), LARGEST))


def plain(amount: Decimal) -> str:
    """Return the shortest exact decimal text: `0`, `12.5`, `0.00000015`; never an exponent."""
    text = format(amount, "f")
    return (text.rstrip("0").rstrip(".") or "0") if "." in text else text


def nanos_up(amount: Decimal) -> int:
    """Return `amount` in whole 1e-9 USD, rounded up, for holds."""
    return ceil(amount * NANO)


def nanos_down(amount: Decimal) -> int:
    """Return `amount` in whole 1e-9 USD, rounded down, for balances."""
    return floor(amount * NANO)


if TYPE_CHECKING:
    _DecimalField = models.DecimalField[Any, Any]
else:
    _DecimalField = models.DecimalField


class MoneyField(_DecimalField):
    """A column of USD: up to a trillion, exact to 1e-12."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["max_digits"], kwargs["decimal_places"] = MAX_DIGITS, DECIMAL_PLACES
        super().__init__(*args, **kwargs)

"""Exact numbers: amounts of money as JSON numbers with all of their digits."""

from __future__ import annotations

from decimal import Decimal

import msgspec

_ZERO = msgspec.Raw(b"0")


def exact_number(amount: Decimal) -> msgspec.Raw:
    """Return an amount as a JSON number with all of its digits and no exponent."""
    if not amount:
        return _ZERO
    text = format(amount, "f")
    return msgspec.Raw((text.rstrip("0").rstrip(".") if "." in text else text).encode() or b"0")

"""A stated line of a bill, validated: counts, amounts, moments and names of bounded size. Pure.

A provider's answer and an operator's file are hostile until proven: a value that cannot be meant makes the whole bill
invalid, with an error that names the line and the field.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec

from apps.kernel.money import exact

# The most of one line: more is a mistake.
MAX_COUNT: Final = 10**15
MAX_COST: Final = Decimal(10**9)
MAX_NAME, MAX_REQUEST_ID = 255, 128
# Lines of one bill; one with more is of another kind, or hostile.
MAX_LINES: Final = 200_000
# The years that a moment may be in.
_YEARS = range(2020, 2101)


class InvalidBill(ValueError):
    """A bill that cannot be read; the message says where and why."""


class StatedLine(msgspec.Struct, frozen=True):
    """A line as the bill states it. Cost in USD; None: not stated.

    `input_tokens` are all input tokens, cached ones included.
    """

    source: str
    starts_at: datetime
    ends_at: datetime
    model: str = ""
    request_id: str = ""
    requests: int | None = None
    input_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    cost: Decimal | None = None

    @property
    def place(self) -> tuple[str, datetime, datetime, str, str]:
        """The place of the line; a bill has one line for each."""
        return (self.source, self.starts_at, self.ends_at, self.model, self.request_id)

    @property
    def values(self) -> tuple[Any, ...]:
        """The counts and the cost, which another version may change."""
        return (
            *(self.requests, self.input_tokens, self.cached_tokens, self.cache_write_tokens),
            *(self.output_tokens, self.cost),
        )


VALUES: Final = ("requests", "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "cost")


def read_count(field: str, value: Any) -> int | None:
    """Return a count; None if it is not stated. Raises InvalidBill naming the field."""
    if value is None or value == "":
        return None
    number = _number(field, value)
    if number != number.to_integral_value() or not 0 <= number <= MAX_COUNT:
        raise InvalidBill(f"{field} is {_shown(value)}, not a whole number between 0 and {MAX_COUNT:,}")
    return int(number)


def read_cost(field: str, value: Any, unit: Decimal = Decimal(1)) -> Decimal | None:
    """Return an amount in USD, stated in units of so many USD; None if it is not stated. Raises InvalidBill."""
    if value is None or value == "":
        return None
    number = _number(field, value)
    if not -MAX_COST <= number <= MAX_COST:
        raise InvalidBill(f"{field} is {_shown(value)}, not an amount of at most {MAX_COST:,} USD")
    return exact(number * unit)


def read_name(field: str, value: Any, longest: int = MAX_NAME) -> str:
    """Return a name; empty if it is not stated. Raises InvalidBill."""
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > longest or not value.isprintable():
        raise InvalidBill(f"{field} is not a printable text of at most {longest} characters")
    return value


def read_moment(field: str, value: Any) -> datetime:
    """Return a moment: RFC 3339, UTC where no zone is stated, or seconds since 1970. Raises InvalidBill."""
    try:
        if isinstance(value, str):
            # BigQuery writes `2026-11-01 10:00:00 UTC`.
            stated = value.strip().removesuffix(" UTC")
            moment = datetime.fromisoformat(stated)
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        else:
            moment = datetime.fromtimestamp(int(_number(field, value)), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidBill(f"{field} is {_shown(value)}, not a moment") from error
    if moment.year not in _YEARS:
        raise InvalidBill(f"{field} is {_shown(value)}, not between {_YEARS[0]} and {_YEARS[-1]}")
    return moment


def check_period(starts_at: datetime, ends_at: datetime) -> None:
    """Refuse a line whose period is not within one day (UTC), which could not be compared. Raises InvalidBill."""
    is_forward = starts_at < ends_at
    if not is_forward or starts_at.date() != (ends_at - timedelta(microseconds=1)).date():
        raise InvalidBill(
            f"the period from {starts_at.isoformat()} to {ends_at.isoformat()} is not within one day (UTC); "
            "export the bill by hour or by day"
        )


def merge(lines: list[StatedLine]) -> list[StatedLine]:
    """Return the lines with those of the same place added up, in order: a bill may split a model by service tier."""
    found: dict[tuple[Any, ...], StatedLine] = {}
    for one in lines:
        known = found.get(one.place)
        found[one.place] = one if known is None else _sum(known, one)
    return list(found.values())


def add(one: Any, other: Any) -> Any:
    """Return the sum of two values of which either may be None (not stated)."""
    return other if one is None else one if other is None else one + other


def _sum(one: StatedLine, other: StatedLine) -> StatedLine:
    sums = {name: add(getattr(one, name), getattr(other, name)) for name in VALUES}
    return msgspec.structs.replace(one, **sums)


def _number(field: str, value: Any) -> Decimal:
    try:
        number = Decimal(value.strip()) if isinstance(value, str) else value
    except InvalidOperation:
        number = None
    if isinstance(number, int) and not isinstance(number, bool):
        number = Decimal(number)
    if not isinstance(number, Decimal) or not number.is_finite():
        raise InvalidBill(f"{field} is {_shown(value)}, not a number")
    # Whole numbers with a giant exponent would take all memory.
    if number.adjusted() > 30:
        raise InvalidBill(f"{field} is {_shown(value)}, which is too large")
    return number


def _shown(value: Any) -> str:
    return repr(str(value)[:40])

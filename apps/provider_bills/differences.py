"""Differences between a day of a bill and the request log, with their causes. Pure.

Bill and log are compared by request where the bill names requests, else by model and hour, and amounts by model and
day. A request counts in the hour in which it began here and in which it ended there, so an hour differs only where the
model's day differs, too.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

import msgspec

from apps.kernel.money import ZERO, exact, plain
from apps.provider_bills.models import BillDifference
from apps.provider_bills.stated_lines import StatedLine, add

# Counts and amounts that differ by less than this share, or by less than these numbers, agree.
_SHARE: Final = Decimal("0.005")
_TOKENS, _REQUESTS = 20, 0
_COST: Final = Decimal("0.01")
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
# The day of a snapshot in a model's name: `-2024-08-06`, `-20250929`, `@20250929`.
_SNAPSHOT: Final = re.compile(r"[-@](?:\d{4}-\d{2}-\d{2}|\d{8})$")

Cause = BillDifference.Cause


class Used(msgspec.Struct, frozen=True):
    """The use of a model in a period, or of a request. None: the bill does not state it."""

    requests: int | None = None
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    cost: Decimal | None = None

    def plus(self, other: Used) -> Used:
        """Return the sum."""
        return Used(*(map(add, msgspec.structs.astuple(self), msgspec.structs.astuple(other))))

    @property
    def tokens(self) -> int | None:
        """Input and output tokens."""
        return add(self.input_tokens, self.output_tokens)  # type: ignore[no-any-return]  # either or None

    @property
    def words(self) -> str:
        """The numbers in words; `nothing` where there are none."""
        parts = []
        if self.requests is not None:
            parts.append(f"{self.requests:,} request{'' if self.requests == 1 else 's'}")
        for name, count in (
            ("input", self.input_tokens),
            ("cached", self.cached_tokens),
            ("output", self.output_tokens),
        ):
            if count is not None:
                parts.append(f"{count:,} {name} tokens")
        if self.cost is not None:
            parts.append(f"{plain(self.cost)} USD")
        return ", ".join(parts) or "nothing"


NOTHING: Final = Used()


class LoggedUse(msgspec.Struct, frozen=True):
    """The log's side: use by model and hour, and by request id for those that the bill names.

    The amounts are list prices. `searches` is the part that was paid for web searches, which bills state apart.
    """

    by_hour: Mapping[tuple[str, datetime], Used]
    by_request: Mapping[str, Used]
    searches: Decimal = ZERO


class FoundBillDifference(msgspec.Struct, frozen=True):
    """One difference: its cause, its place, both sides, and the bill less the log in USD, None if unknown."""

    cause: Cause
    model: str
    starts_at: datetime
    ends_at: datetime
    billed: Used
    logged: Used
    cost: Decimal | None
    request_id: str = ""


def plain_model(name: str) -> str:
    """Return a model's name without the day of its snapshot: bills name the snapshot, requests often do not."""
    return _SNAPSHOT.sub("", name.lower())


def find_differences(day: datetime, lines: Sequence[StatedLine], logged: LoggedUse) -> list[FoundBillDifference]:
    """Return the differences of a day, which begins at `day`."""
    named = [one for one in lines if one.request_id]
    found = list(_differing_requests(named, logged.by_request))
    rest = [one for one in lines if not one.request_id]
    use = _by_model(logged.by_hour)
    billed = _BilledDay(day, rest)
    explained: set[str] = set()
    # Where the bill names requests, what it does not name is missing there.
    if billed.states_use or named:
        for model in sorted(use.keys() | billed.use.keys()):
            differing = list(_differing_periods(model, billed, use.get(model, {})))
            found += differing
            explained |= {one.model for one in differing}
    if billed.costs:
        amounts = {model: _total(hours.values()) for model, hours in use.items()}
        if logged.searches:
            amounts[""] = Used(cost=logged.searches)
        found += _differing_amounts(day, billed, amounts, explained)
    return found


class _BilledDay:
    """The lines of a day without request ids: use by model and period, and amounts by model."""

    def __init__(self, day: datetime, lines: Iterable[StatedLine]) -> None:
        self.day = day
        self.use: defaultdict[str, dict[datetime, Used]] = defaultdict(dict)
        self.daily: set[str] = set()
        self.costs: dict[str, Decimal] = {}
        for one in lines:
            model = plain_model(one.model)
            if one.cost is not None:
                self.costs[model] = self.costs.get(model, ZERO) + one.cost
            if one.requests is None and one.input_tokens is None and one.output_tokens is None:
                continue
            if one.ends_at - one.starts_at > _HOUR:
                self.daily.add(model)
            hour = one.starts_at.replace(minute=0, second=0, microsecond=0)
            used = Used(one.requests, one.input_tokens, one.cached_tokens, one.output_tokens)
            hours = self.use[model]
            hours[hour] = hours[hour].plus(used) if hour in hours else used
        # Withdrawn lines state 0.
        self.states_use = bool(self.use)


def _differing_requests(lines: Iterable[StatedLine], logged: Mapping[str, Used]) -> Iterator[FoundBillDifference]:
    for one in lines:
        billed = Used(one.requests, one.input_tokens, one.cached_tokens, one.output_tokens, one.cost)
        known = logged.get(one.request_id)
        if known is None:
            cause, cost = Cause.OUTSIDE, one.cost
        elif _differs(billed, known):
            cause, cost = Cause.TOKENS, _gap(one.cost, known.cost)
        elif one.cost is not None and _is_other_amount(one.cost, known.cost or ZERO):
            cause, cost = Cause.PRICE, _gap(one.cost, known.cost)
        else:
            continue
        yield FoundBillDifference(
            cause, one.model, one.starts_at, one.ends_at, billed, known or NOTHING, cost, one.request_id
        )


def _differing_periods(
    model: str, billed: _BilledDay, logged: Mapping[datetime, Used]
) -> Iterator[FoundBillDifference]:
    """Yield the hours of a model that differ; the day if only that does, or if the bill has days."""
    stated = billed.use.get(model, {})
    both = _total(stated.values()), _total(logged.values())
    if not _differs(*both):
        return
    hours: list[datetime] = []
    if model not in billed.daily:
        hours = [
            hour
            for hour in sorted(stated.keys() | logged.keys())
            if _differs(stated.get(hour, NOTHING), logged.get(hour, NOTHING))
        ]
    pairs = [(hour, _HOUR, stated.get(hour, NOTHING), logged.get(hour, NOTHING)) for hour in hours]
    pairs = pairs or [(billed.day, _DAY, *both)]
    costs = _costs_of([(one, other) for _, _, one, other in pairs], both[1], billed.costs.get(model))
    for (begin, length, one, other), cost in zip(pairs, costs, strict=True):
        yield FoundBillDifference(_cause_of(one, other), model, begin, begin + length, one, other, cost)


def _costs_of(pairs: Sequence[tuple[Used, Used]], logged: Used, billed_cost: Decimal | None) -> list[Decimal | None]:
    """Return each difference in USD: shares of the day's difference in amount, else tokens at the log's mean price."""
    surplus = [(one.tokens or one.requests or 0) - (other.tokens or other.requests or 0) for one, other in pairs]
    total = sum(surplus)
    if billed_cost is not None and total:
        gap = billed_cost - (logged.cost or ZERO)
        return [exact(gap * more / total) for more in surplus]
    if logged.tokens and logged.cost is not None:
        return [exact(logged.cost * more / logged.tokens) for more in surplus]
    return [billed_cost if len(pairs) == 1 else None for _ in pairs]


def _differing_amounts(
    day: datetime, billed: _BilledDay, logged: Mapping[str, Used], explained: set[str]
) -> Iterator[FoundBillDifference]:
    """Yield the models whose amounts of the day differ, unless their use does, which explains it."""
    for model in sorted(billed.costs.keys() | logged.keys()):
        here = logged.get(model, NOTHING)
        there = billed.costs.get(model)
        if model in explained or not _is_other_amount(there or ZERO, here.cost or ZERO):
            continue
        is_missing = there is None and model not in billed.use
        cause = Cause.OUTSIDE if here == NOTHING else Cause.MISSING if is_missing else Cause.PRICE
        yield FoundBillDifference(
            cause, model, day, day + _DAY, Used(cost=there), here, (there or ZERO) - (here.cost or ZERO)
        )


def _cause_of(billed: Used, logged: Used) -> Cause:
    if _is_empty(logged):
        return Cause.OUTSIDE
    if _is_empty(billed):
        return Cause.MISSING
    if billed.requests is not None and logged.requests is not None:
        more = billed.requests - logged.requests
        if abs(more) > _SHARE * max(billed.requests, logged.requests):
            return Cause.OUTSIDE if more > 0 else Cause.MISSING
    return Cause.TOKENS


def _is_empty(used: Used) -> bool:
    return not (used.requests or used.input_tokens or used.output_tokens)


def _differs(billed: Used, logged: Used) -> bool:
    """Return whether tokens differ; requests, where the bill counts no tokens."""
    if billed != NOTHING and billed.tokens is None:
        return _is_other_count(billed.requests or 0, logged.requests or 0, _REQUESTS)
    if billed == NOTHING and not logged.tokens:
        return bool(logged.requests)
    pairs = [(billed.input_tokens, logged.input_tokens), (billed.output_tokens, logged.output_tokens)]
    if billed.cached_tokens is not None:
        pairs.append((billed.cached_tokens, logged.cached_tokens))
    return any(_is_other_count(one or 0, other or 0, _TOKENS) for one, other in pairs)


def _is_other_count(one: int, other: int, least: int) -> bool:
    return abs(one - other) > max(Decimal(least), _SHARE * max(one, other))


def _is_other_amount(one: Decimal, other: Decimal) -> bool:
    return abs(one - other) > max(_COST, _SHARE * max(abs(one), abs(other)))


def _gap(billed: Decimal | None, logged: Decimal | None) -> Decimal | None:
    return None if billed is None else billed - (logged or ZERO)


def _total(all_used: Iterable[Used]) -> Used:
    total = NOTHING
    for one in all_used:
        total = total.plus(one)
    return total


def _by_model(by_hour: Mapping[tuple[str, datetime], Used]) -> dict[str, dict[datetime, Used]]:
    found: dict[str, dict[datetime, Used]] = defaultdict(dict)
    for (name, hour), used in by_hour.items():
        hours = found[plain_model(name)]
        hours[hour] = hours[hour].plus(used) if hour in hours else used
    return found

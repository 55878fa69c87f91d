"""Limits as requests meet them: which of a key's limits hold for a request, their counters, and what it adds to them.

Amounts are whole units: 1e-9 USD of money, else requests or tokens. Without a query.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from hashlib import blake2b
from uuid import UUID

import msgspec

from apps.billing import balances
from apps.billing.reservations import LimitHold
from apps.kernel.money import NANO, ZERO, nanos_up, plain
from apps.limits.models import Limit
from apps.limits.windows import Window, WindowKind, window_at

# Limits that hold for one request; `actions.py` refuses more.
MAX_APPLYING = 16
# The limit of one that refuses nothing.
_UNLIMITED = 9 * 10**15
_OF_PROMPTS = frozenset({Limit.Counts.TOKENS, Limit.Counts.INPUT_TOKENS})
_OF_ANSWERS = frozenset({Limit.Counts.TOKENS, Limit.Counts.OUTPUT_TOKENS})


class LimitRule(msgspec.Struct, frozen=True):
    """A limit that may hold for requests of a key; `raised_until` is in seconds since 1970."""

    id: UUID
    organization_id: UUID
    name: str
    scope: str
    end_user: str
    model: str
    counts: str
    window: WindowKind
    time_zone: str
    amount: Decimal
    refuses: bool
    raised_amount: Decimal | None = None
    raised_until: float = 0.0

    @property
    def is_money(self) -> bool:
        """Whether it counts USD."""
        return self.counts == Limit.Counts.USD

    def amount_at(self, moment: float) -> Decimal:
        """Return the amount in force at a moment, in USD or as a whole number."""
        return self.amount if self.raised_amount is None or moment >= self.raised_until else self.raised_amount

    def covers(self, model_id: str) -> bool:
        """Return whether requests to a model count."""
        return not self.model or matches_model(self.model, model_id)


class AppliedLimit(msgspec.Struct, frozen=True):
    """A limit that holds for a request: its counter, the window, and the most that it may reach, in units."""

    rule: LimitRule
    counter_id: UUID
    window: Window
    capacity: int

    @property
    def counter(self) -> str:
        """The Redis key of the counter's copy."""
        return balances.key("limit", self.counter_id, self.rule.organization_id)

    @property
    def counts_tokens(self) -> bool:
        """Whether it counts tokens, of which a request may use less than it holds."""
        return self.rule.counts in _OF_PROMPTS or self.rule.counts in _OF_ANSWERS

    def hold_for(self, prompt_tokens: int) -> LimitHold:
        """Return what a request with a prompt of about so many tokens holds of it."""
        counts, refuses = self.rule.counts, self.rule.refuses
        base = 1 if counts == Limit.Counts.REQUESTS else prompt_tokens if counts in _OF_PROMPTS else 0
        return LimitHold(
            counter=self.counter,
            ceiling=self.capacity if refuses else _UNLIMITED,
            is_money=self.rule.is_money,
            base=base,
            each=1 if counts in _OF_ANSWERS else 0,
            warns_at=None if refuses else self.capacity,
        )


class CountedAmount(msgspec.Struct, frozen=True):
    """The amount that a recorded request adds to a counter: USD, or a whole number. Travels with the record."""

    counter_id: UUID
    limit_id: UUID
    starts_at: int
    ends_at: int | None
    is_money: bool
    amount: Decimal


def rule_of(row: Limit) -> LimitRule:
    """Return a row as requests read it."""
    return LimitRule(
        id=row.id,
        organization_id=row.organization_id,
        name=row.name,
        scope=row.scope,
        end_user=row.end_user,
        model=row.model,
        counts=row.counts,
        window=WindowKind(row.window),
        time_zone=row.time_zone,
        amount=row.amount,
        refuses=row.action == Limit.Action.REFUSE,
        raised_amount=row.raised_amount,
        raised_until=0.0 if row.raised_until is None else row.raised_until.timestamp(),
    )


def find_applying(
    rules: Sequence[LimitRule], model_ids: Iterable[str], end_user: str | None, moment: float
) -> tuple[AppliedLimit, ...]:
    """Return the limits that hold for a request that any of these models may answer.

    An end user's own limit takes the place of the project's limits for each end user with the same model, count and
    window.
    """
    models = frozenset(model_ids)
    own = {_kind_of(rule) for rule in rules if rule.end_user and rule.end_user == end_user}
    applied = []
    for rule in rules:
        subject = ""
        if rule.scope == Limit.Scope.END_USER:
            if end_user is None or rule.end_user not in ("", end_user) or (not rule.end_user and _kind_of(rule) in own):
                continue
            subject = end_user
        if rule.model and not any(map(rule.covers, models)):
            continue
        applied.append(apply_rule(rule, subject, moment))
    return tuple(applied)


def counter_id_of(limit_id: UUID, end_user: str, starts_at: int) -> UUID:
    """Return the id of a counter. An end user's id is not stored: it may be long, and is personal data."""
    text = f"{starts_at}:{end_user}".encode("utf-8", "surrogatepass")
    return UUID(bytes=blake2b(text, digest_size=16, key=limit_id.bytes).digest())


def apply_rule(rule: LimitRule, end_user: str, moment: float) -> AppliedLimit:
    """Return the limit as it holds for requests of an end user (empty: not a limit of end users) at a moment."""
    window = window_at(rule.window, rule.time_zone, moment)
    amount = rule.amount_at(moment)
    capacity = int(amount * NANO) if rule.is_money else int(amount)
    return AppliedLimit(rule, counter_id_of(rule.id, end_user, window.starts_at), window, capacity)


def count(
    applied: Iterable[AppliedLimit], *, model_id: str, cost: Decimal, input_tokens: int, output_tokens: int
) -> tuple[CountedAmount, ...]:
    """Return what a request adds to its counters; limits of models that did not answer are left out."""
    amounts = {
        Limit.Counts.USD: cost,
        Limit.Counts.REQUESTS: Decimal(1),
        Limit.Counts.TOKENS: Decimal(input_tokens + output_tokens),
        Limit.Counts.INPUT_TOKENS: Decimal(input_tokens),
        Limit.Counts.OUTPUT_TOKENS: Decimal(output_tokens),
    }
    return tuple(
        CountedAmount(one.counter_id, one.rule.id, one.window.starts_at, one.window.ends_at, one.rule.is_money, amount)
        for one in applied
        if one.rule.covers(model_id) and (amount := amounts[Limit.Counts(one.rule.counts)]) > ZERO
    )


def units_of(counted: Iterable[CountedAmount]) -> dict[UUID, int]:
    """Return the amount to add to each counter, in units."""
    return {one.counter_id: nanos_up(one.amount) if one.is_money else int(one.amount) for one in counted}


def text_of(units: int, *, is_money: bool) -> str:
    """Return an amount of units as text: USD, or a whole number."""
    return plain(Decimal(units) / NANO) if is_money else str(units)


def matches_model(pattern: str, model_id: str) -> bool:
    """Return whether a model's id matches a pattern, in which `*` is any text; patterns have no `?` and no `[`."""
    return pattern == model_id or ("*" in pattern and fnmatchcase(model_id, pattern))


def describe(applied: AppliedLimit) -> str:
    """Return which limit it is, whose and how much, for messages: `limit "Daily" of the project, 10 requests a day`."""
    rule = applied.rule
    amount = text_of(applied.capacity, is_money=rule.is_money)
    counted = "USD" if rule.is_money else rule.counts.replace("_", " ").removesuffix("s" if amount == "1" else "")
    window = "in all" if rule.window is WindowKind.LIFETIME else f"a {rule.window}"
    model = f" on {rule.model}" if rule.model and rule.scope != Limit.Scope.MODEL else ""
    whose = f"model {rule.model}" if rule.scope == Limit.Scope.MODEL else _OWNERS[rule.scope]
    return f'limit "{rule.name}" of the {whose}{model}, {amount} {counted} {window}'


def resets_at(applied: AppliedLimit) -> str:
    """Return when the limit counts from 0 again, for messages."""
    if applied.window.ends_at is None:
        return "it does not reset"
    moment = datetime.fromtimestamp(applied.window.ends_at, UTC)
    return f"it resets at {moment.isoformat().replace('+00:00', 'Z')}"


_OWNERS: dict[str, str] = {
    Limit.Scope.ORGANIZATION: "organization",
    Limit.Scope.TEAM: "team",
    Limit.Scope.PROJECT: "project",
    Limit.Scope.MEMBER: "member",
    Limit.Scope.KEY: "API key",
    Limit.Scope.END_USER: "end user",
}


def _kind_of(rule: LimitRule) -> tuple[str, str, str]:
    return rule.model, rule.counts, rule.window

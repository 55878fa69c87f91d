"""Limits on spending, requests and tokens, and how much of each is used.

A further kind of limit joins by a function in `SOURCES`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

from django.db.models import F, QuerySet

from apps.billing.period_limits import find_usage_ceiling
from apps.kernel.money import NANO
from apps.kernel.pages.number_formats import usd
from apps.keys.models import ApiKey
from apps.limits import counters
from apps.limits.applied import apply_rule, describe, rule_of
from apps.limits.models import Limit


@dataclass(frozen=True, slots=True)
class LimitUse:
    """A limit and its used part. `subject` identifies the limit; `page` is where it can be changed.

    Amounts are USD unless `unit` names another: `requests`, `output tokens`. A limit that refuses nothing only warns.
    """

    organization_id: UUID
    subject: str
    # In sentences: `the usage limit of the API key Web shop`.
    words: str
    used: Decimal
    limit: Decimal
    page: str
    unit: str = ""
    refuses: bool = True

    @property
    def text(self) -> str:
        """The used part and the limit: `$8.00 of $10.00 is used`, `800 of 1,000 requests are used`."""
        if self.unit:
            return f"{self.used:,.0f} of {self.limit:,.0f} {self.unit} are used"
        return f"{usd(self.used)} of {usd(self.limit)} is used"

    @property
    def share(self) -> Decimal:
        """The used share of one."""
        return self.used / self.limit if self.limit else Decimal(1)


# Yields the limits of organizations of which at least a share of one is used at a time.
LimitSource = Callable[[Collection[UUID], Decimal, datetime], Iterable[LimitUse]]


def _usage_limits(organizations: Collection[UUID], share: Decimal, now: datetime) -> Iterator[LimitUse]:
    """Yield the usage limits of API keys."""
    keys = _keys_of(organizations).filter(usage_limit__gt=0, usage__gte=F("usage_limit") * share)
    for key in keys:
        yield LimitUse(
            key.project.organization_id,
            f"key:{key.id}",
            f"the usage limit of the API key {key.description}",
            key.usage,
            key.usage_limit or Decimal(0),
            f"keys/{key.id}",
        )


def _period_limits(organizations: Collection[UUID], share: Decimal, now: datetime) -> Iterator[LimitUse]:
    """Yield the limits of API keys for an hour, day, week or month."""
    # Usage in a period is at most the total usage.
    keys = _keys_of(organizations).filter(period_limit__gt=0, usage__gte=F("period_limit") * share).exclude(period="")
    for key in keys:
        ceiling = find_usage_ceiling(key, key.project.organization_id, now)
        if ceiling is None:
            continue
        used = key.usage - (ceiling.usage - ceiling.amount)
        if used >= ceiling.amount * share:
            yield LimitUse(
                key.project.organization_id,
                f"key-period:{key.id}",
                f"the limit per {ceiling.period} of the API key {key.description}",
                used,
                ceiling.amount,
                f"keys/{key.id}",
            )


def _limits(organizations: Collection[UUID], share: Decimal, now: datetime) -> Iterator[LimitUse]:
    """Yield the limits of organizations, projects, members, keys, models and single end users.

    Left out are limits a minute, which are over before an alert is read, and those of each end user.
    """
    rows = Limit.objects.filter(organization__in=organizations).exclude(window=Limit.Window.MINUTE)
    rows = rows.exclude(scope=Limit.Scope.END_USER, end_user="").order_by("id")
    applied = {row: apply_rule(rule_of(row), row.end_user, now.timestamp()) for row in rows}
    counted = counters.usage_of(applied.values())
    for row, one in applied.items():
        used = counted[one.counter_id]
        if one.capacity and used >= one.capacity * share:
            unit, divisor = ("", NANO) if one.rule.is_money else (row.counts.replace("_", " "), Decimal(1))
            yield LimitUse(
                row.organization_id,
                f"limit:{row.id}",
                f"the {describe(one)},",
                Decimal(used) / divisor,
                Decimal(one.capacity) / divisor,
                "limits",
                unit,
                refuses=one.rule.refuses,
            )


def _keys_of(organizations: Collection[UUID]) -> QuerySet[ApiKey]:
    """Return the active keys of organizations, with their projects."""
    keys = ApiKey.objects.filter(project__organization__in=organizations, status=ApiKey.Status.ACTIVE)
    return keys.select_related("project").order_by("id")


SOURCES: Final[tuple[LimitSource, ...]] = (_usage_limits, _period_limits, _limits)


def limits_used(organizations: Collection[UUID], share: Decimal, now: datetime) -> Iterator[LimitUse]:
    """Yield the limits of organizations of which at least `share` (of one) is used."""
    for source in SOURCES:
        yield from source(organizations, share, now)

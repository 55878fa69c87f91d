"""Conditions of alert rules: each kind's function reads, for many rules with few queries, which subjects meet it.

A condition has two thresholds. A reading exists while the subject is beyond the second, which keeps an open alert open;
`fires` is true beyond the first, the rule's own. A value that swings around the threshold therefore alerts once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from statistics import median
from typing import Any, Final
from uuid import UUID

from django.db.models import Exists, OuterRef, Q

from apps.alerts import counted
from apps.alerts.counted import limits_used
from apps.alerts.kind_names import KindName
from apps.alerts.models import AlertDestination, AlertRule
from apps.billing import subscription
from apps.billing.models import BillingAccount, Transaction
from apps.catalog import catalog_cache
from apps.catalog.models import PriceChange
from apps.catalog.price_history import steps_of
from apps.catalog.price_words import NO_PRICE
from apps.kernel.money import plain
from apps.kernel.pages.number_formats import percent, usd
from apps.keys.models import ApiKey
from apps.log_sinks.models import LogSink
from apps.logs.models import ActivityDay, ActivityDelta
from apps.mcp_servers.models import McpServer
from apps.organizations.models import Organization

# Days of which the spending makes the pace, and days in which a model counts as in use.
PACE_DAYS: Final = 7
# Days before today that make the usual spending, and days with spending that it takes.
USUAL_DAYS, MIN_USUAL_DAYS = 14, 3
# Period of error rates and latencies.
ANSWERS_PERIOD: Final = timedelta(minutes=15)
# How long after an event it may still be alerted of, such as after an outage of the worker.
EVENT_AGE: Final = timedelta(days=2)
# A value has to fall to this part of its threshold before the alert is resolved; a balance to rise accordingly.
_BACK: Final = Decimal("0.9")
# Percentage points of a limit.
_POINTS: Final = 5
# Maximum price steps in the text of an alert.
_MAX_STEPS: Final = 10


@dataclass(frozen=True, slots=True)
class Reading:
    """A subject that meets a rule's condition: whether it fires, and the words and numbers of its alert."""

    rule: AlertRule
    # Identifies the cause within the rule.
    subject: str
    fires: bool
    title: str
    text: str
    # The page of the console with the next step, after the organization's path.
    page: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    # Whether owners get an e-mail about this cause from elsewhere.
    owners_told: bool = False


Condition = Callable[[Sequence[AlertRule], datetime], Iterator[Reading]]


def balance_low(rules: Sequence[AlertRule], now: datetime) -> Iterator[Reading]:
    """Yield organizations that spend credits and whose balance is below the rule's amount."""
    balances = _balances(rules)
    spending = counted.spending_by_day(balances, _day(now) - timedelta(days=PACE_DAYS))
    for rule in rules:
        balance, amount = balances[rule.organization_id], Decimal(rule.parameters["amount"])
        if balance >= amount / _BACK:
            continue
        # An organization that has never used credits is not about to run out of them.
        uses_credits = any(one.credits > 0 for one in spending.get(rule.organization_id, {}).values())
        yield Reading(
            rule,
            "",
            uses_credits and balance < amount,
            f"The balance is {usd(balance)}, below {usd(amount)}",
            f"The organization has {usd(balance)} of credits left. Requests that are paid with credits are refused "
            "once they are used up. Top up, or turn on automatic top-up.",
            "billing",
            {"balance": plain(balance), "threshold": plain(amount)},
        )


def balance_runway(rules: Sequence[AlertRule], now: datetime) -> Iterator[Reading]:
    """Yield organizations whose balance lasts for fewer days than the rule's, at the pace of the last days."""
    balances = _balances(rules)
    today = _day(now)
    spending = counted.spending_by_day(balances, today - timedelta(days=PACE_DAYS - 1))
    for rule in rules:
        balance, days = balances[rule.organization_id], Decimal(rule.parameters["days"])
        spent = sum((one.credits for one in spending.get(rule.organization_id, {}).values()), Decimal(0))
        pace = spent / PACE_DAYS
        if pace <= 0 or balance <= 0:
            continue
        left = balance / pace
        if left >= days / _BACK:
            continue
        yield Reading(
            rule,
            "",
            left < days,
            f"The balance lasts about {left:.1f} days",
            f"The organization has {usd(balance)} of credits left, and spent {usd(pace)} a day over the last "
            f"{PACE_DAYS} days. At that pace they last {left:.1f} days. Top up, or turn on automatic top-up.",
            "billing",
            {"balance": plain(balance), "perDay": f"{pace:.6f}", "days": f"{left:.1f}"},
        )


def limit_share(rules: Sequence[AlertRule], now: datetime) -> Iterator[Reading]:
    """Yield limits of which at least the rule's share is used."""
    lowest = min(int(rule.parameters["percent"]) for rule in rules) - _POINTS
    by_organization = _by_organization(rules)
    for use in limits_used(by_organization, max(Decimal(lowest), Decimal(0)) / 100, now):
        used = use.share * 100
        for rule in by_organization[use.organization_id]:
            threshold = int(rule.parameters["percent"])
            if used < threshold - _POINTS:
                continue
            refusal = "Requests beyond it are refused. " if used >= 100 else "Requests are refused once it is reached. "
            ending = refusal if use.refuses else ""
            yield Reading(
                rule,
                use.subject,
                used >= threshold,
                # The rule's share, which tells the alerts of several rules on one limit apart.
                f"{threshold}% of {use.words} is used",
                f"{use.text}. {ending}Raise the limit, or find out what spends it.",
                use.page,
                {"used": plain(use.used), "limit": plain(use.limit), "percent": f"{used:.1f}"},
            )


def daily_spend(rules: Sequence[AlertRule], now: datetime) -> Iterator[Reading]:
    """Yield today for organizations that have spent far more than on a usual day."""
    today = _day(now)
    by_organization = _by_organization(rules)
    spending = counted.spending_by_day(by_organization, today - timedelta(days=USUAL_DAYS))
    for organization_id, days in spending.items():
        earlier = [one.total for day, one in days.items() if day < today and one.total > 0]
        spent = days[today].total if today in days else Decimal(0)
        if len(earlier) < MIN_USUAL_DAYS:
            continue
        usual = median(earlier)
        for rule in by_organization[organization_id]:
            if spent > usual * int(rule.parameters["factor"]) and spent > Decimal(rule.parameters["floor"]):
                yield Reading(
                    rule,
                    today.isoformat(),
                    True,
                    f"Spending today is {spent / usual:.1f} times the usual",
                    f"{usd(spent)} was spent on {today.isoformat()} (UTC) so far. The median of the last {USUAL_DAYS} "
                    f"days with requests is {usd(usual)}. See which model and key it was, and limit the key if it "
                    "should not go on.",
                    "usage",
                    {"spent": plain(spent), "usual": plain(usual), "day": today.isoformat()},
                )


def error_rate(rules: Sequence[AlertRule], now: datetime) -> Iterator[Reading]:
    """Yield models or providers with a high share of errors in the last minutes."""
    for rule, name, answers in _answers(rules, now):
        rate, threshold = Decimal(100 * answers.errors) / answers.total, Decimal(rule.parameters["percent"])
        if rate <= threshold * _BACK:
            continue
        yield Reading(
            rule,
            name,
            rate > threshold and answers.total >= rule.parameters["min_requests"],
            f"{percent(float(rate))} of requests to the {rule.parameters['aspect']} {name} fail",
            f"{answers.errors:,} of {answers.total:,} requests in the last 15 minutes ended with an error. See the "
            "errors in the log, and use another model or provider until it works.",
            "logs",
            {"requests": answers.total, "errors": answers.errors, "percent": f"{rate:.2f}"},
        )


def latency(rules: Sequence[AlertRule], now: datetime) -> Iterator[Reading]:
    """Yield models or providers that are slow in the last minutes."""
    for rule, name, answers in _answers(rules, now):
        threshold = int(rule.parameters["milliseconds"])
        if answers.p95 <= threshold * _BACK:
            continue
        yield Reading(
            rule,
            name,
            answers.p95 > threshold and answers.total >= rule.parameters["min_requests"],
            f"The p95 latency of the {rule.parameters['aspect']} {name} is {answers.p95 / 1000:,.1f} s",
            f"5% of {answers.total:,} requests in the last 15 minutes took longer than {answers.p95 / 1000:,.1f} s; "
            f"the rule's threshold is {threshold / 1000:,.1f} s. See the slow requests in the log, and use another "
            "model or provider until it is faster.",
            "logs",
            {"requests": answers.total, "p95Milliseconds": answers.p95},
        )


def key_unused(rules: Sequence[AlertRule], now: datetime) -> Iterator[Reading]:
    """Yield active API keys without a request for the rule's days."""
    for rule in rules:
        first = _day(now) - timedelta(days=int(rule.parameters["days"]))
        named = {"organization_id": rule.organization_id, "api_key_id": OuterRef("pk"), "date__gte": first}
        keys = ApiKey.objects.filter(
            ~Exists(ActivityDay.objects.filter(project_id=OuterRef("project_id"), **named)),
            ~Exists(ActivityDelta.objects.filter(**named)),
            project__organization=rule.organization_id,
            status=ApiKey.Status.ACTIVE,
            created_at__lt=datetime.combine(first, datetime.min.time(), UTC),
        )
        for key in keys.order_by("id"):
            yield Reading(
                rule,
                str(key.id),
                True,
                f"The API key {key.description} has not been used for {rule.parameters['days']} days",
                f"The key {key.masked_token} has had no request since {first.isoformat()}. A key that is not used can "
                "leak unnoticed: switch it off or delete it.",
                f"keys/{key.id}",
                {"days": rule.parameters["days"]},
            )


def model_retirement(rules: Sequence[AlertRule], now: datetime) -> Iterator[Reading]:
    """Yield models in use that their provider shuts off within the rule's days."""
    catalog, today = catalog_cache.current(), _day(now)
    by_organization = _by_organization(rules)
    used = counted.offers_in_use(by_organization, today - timedelta(days=PACE_DAYS))
    for organization_id, offers in used.items():
        for provider, model in sorted(offers):
            offer = catalog.find_offer(provider, model)
            if offer is None or offer.deactivated_at is None:
                continue
            left = (offer.deactivated_at - today).days
            for rule in by_organization[organization_id]:
                if left <= int(rule.parameters["days"]):
                    yield _retirement(rule, provider, model, offer.deactivated_at, left)


def price_change(rules: Sequence[AlertRule], now: datetime) -> Iterator[Reading]:
    """Yield changes of the price of a model in use."""
    changes = list(PriceChange.objects.filter(created_at__gte=now - EVENT_AGE).exclude(old={}).order_by("id"))
    if not changes:
        return
    by_organization = _by_organization(rules)
    used = counted.offers_in_use(by_organization, _day(now) - timedelta(days=PACE_DAYS))
    for change in changes:
        for organization_id, offers in used.items():
            if (change.provider, change.model) not in offers:
                continue
            for rule in by_organization[organization_id]:
                # Earlier changes are known to people who add the rule.
                if change.created_at >= rule.created_at:
                    yield _price_change(rule, change)


def integration_off(rules: Sequence[AlertRule], now: datetime) -> Iterator[Reading]:
    """Yield log sinks, MCP servers and alert destinations that are switched off."""
    by_organization = _by_organization(rules)
    off = Q(organization__in=by_organization) & ~Q(status__in=["active", "deleted"])
    tables: list[tuple[Any, str, str]] = [
        (LogSink, "log sink", "log-sinks"),
        (McpServer, "MCP server", "mcp-servers"),
        (AlertDestination, "alert destination", "alert-destinations"),
    ]
    for model, noun, page in tables:
        for row in model.objects.filter(off).order_by("id"):
            failed = row.status == "failed"
            since = (row.last_error_at if failed else None) or row.updated_at
            reason = (
                f"It failed for three days. Last error: {row.last_error}." if failed else "A member switched it off."
            )
            for rule in by_organization[row.organization_id]:
                yield Reading(
                    rule,
                    f"{row._meta.model_name}:{row.pk}",
                    # Those that were off before are known to people who add the rule.
                    since >= rule.created_at,
                    f"The {noun} {row.name} is switched off",
                    f"{reason} It gets nothing until it is switched on again.",
                    page,
                    {"status": row.status},
                    owners_told=failed and model is LogSink,
                )


def payment_failed(rules: Sequence[AlertRule], now: datetime) -> Iterator[Reading]:
    """Yield payments that failed, and subscriptions whose renewal failed."""
    by_organization = _by_organization(rules)
    payments = Transaction.objects.filter(
        organization__in=by_organization,
        status=Transaction.Status.FAILED,
        type__in=[Transaction.Type.CREDIT_TOPUP, Transaction.Type.SUBSCRIPTION_START],
        created_at__gte=now - 2 * EVENT_AGE,
        updated_at__gte=now - EVENT_AGE,
    )
    for row in payments.order_by("id"):
        for rule in by_organization[row.organization_id]:
            if row.updated_at < rule.created_at:
                continue
            yield Reading(
                rule,
                f"payment:{row.id}",
                True,
                f"A payment of {usd(row.amount)} failed",
                f"{row.description}. Nothing was charged. Try again, or add another payment method.",
                "billing",
                {"amount": plain(row.amount), "automatic": row.is_automatic},
                # Owners have the e-mail about automatic top-ups.
                owners_told=row.is_automatic,
            )
    accounts = BillingAccount.objects.filter(
        organization__in=by_organization, subscription_status=subscription.UNPAID, updated_at__gte=now - EVENT_AGE
    ).select_related("organization")
    for account in accounts.order_by("pk"):
        expires = account.organization.plan_expires_at
        for rule in by_organization[account.organization_id]:
            yield Reading(
                rule,
                f"renewal:{account.subscription_id}:{expires.date() if expires else ''}",
                account.updated_at >= rule.created_at,
                "The pro plan could not be renewed",
                "The payment for the pro plan failed. It is tried again, and the plan stays for seven days after the "
                "end of the paid period. Add another payment method to keep it.",
                "billing",
                owners_told=True,
            )


CONDITIONS: Final[Mapping[KindName, Condition]] = {
    KindName.BALANCE_LOW: balance_low,
    KindName.BALANCE_RUNWAY: balance_runway,
    KindName.LIMIT_SHARE: limit_share,
    KindName.DAILY_SPEND: daily_spend,
    KindName.ERROR_RATE: error_rate,
    KindName.LATENCY: latency,
    KindName.KEY_UNUSED: key_unused,
    KindName.MODEL_RETIREMENT: model_retirement,
    KindName.PRICE_CHANGE: price_change,
    KindName.INTEGRATION_OFF: integration_off,
    KindName.PAYMENT_FAILED: payment_failed,
}


def _answers(rules: Sequence[AlertRule], now: datetime) -> Iterator[tuple[AlertRule, str, counted.Answers]]:
    """Yield each rule with the models or providers that it watches, and their last answers."""
    by_organization = _by_organization(rules)
    found = counted.recent_answers(by_organization, now - ANSWERS_PERIOD, now)
    for organization_id, named in found.items():
        for rule in by_organization[organization_id]:
            for (aspect, name), answers in sorted(named.items()):
                if aspect == rule.parameters["aspect"] and rule.parameters["name"] in ("", name):
                    yield rule, name, answers


def _retirement(rule: AlertRule, provider: str, model: str, last: date, left: int) -> Reading:
    when = f"in {left} days, on {last.isoformat()}" if left > 0 else f"since {last.isoformat()}"
    return Reading(
        rule,
        f"{provider}/{model}",
        True,
        f"The model {model} at {provider} {'retires' if left > 0 else 'is retired'} {when}",
        f"Requests to it go to another provider of the model, or are refused if there is none. The organization has "
        f"used it within the last {PACE_DAYS} days. Move to another model {'before then' if left > 0 else 'now'}.",
        "usage",
        {"day": last.isoformat(), "days": left},
    )


def _price_change(rule: AlertRule, change: PriceChange) -> Reading:
    steps = list(steps_of(change))
    words = "; ".join(f"{one.name}: {one.old or NO_PRICE} → {one.new or NO_PRICE}" for one in steps[:_MAX_STEPS])
    return Reading(
        rule,
        str(change.id),
        True,
        f"The price of {change.model} at {change.provider} changed",
        f"Prices in USD: {words}. The organization has used the model within the last {PACE_DAYS} days. Compare "
        "providers and models, and adjust limits of keys if needed.",
        "usage",
        {"changes": len(steps)},
    )


def _balances(rules: Sequence[AlertRule]) -> dict[UUID, Decimal]:
    """Return the credits of the rules' organizations."""
    rows = Organization.objects.filter(pk__in={rule.organization_id for rule in rules})
    return dict(rows.values_list("pk", "credits"))


def _by_organization(rules: Collection[AlertRule]) -> dict[UUID, list[AlertRule]]:
    found: dict[UUID, list[AlertRule]] = {}
    for rule in rules:
        found.setdefault(rule.organization_id, []).append(rule)
    return found


def _day(now: datetime) -> date:
    return now.astimezone(UTC).date()

"""Rules and destinations made for tests, and the scenarios in which each kind of alert fires and is resolved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.utils import timezone

from apps.alerts.evaluation import evaluate, watch
from apps.alerts.messages import Credentials, IncomingWebhook, RoutingKey
from apps.alerts.models import Alert, AlertDestination, AlertRule
from apps.billing import ledger
from apps.billing.ledger import Charge
from apps.billing.models import Transaction
from apps.catalog import catalog_cache
from apps.catalog.models import ModelProvider, PriceChange
from apps.destinations.credentials import WebhookSecret, encrypt_credentials
from apps.kernel.ids import new_id
from apps.kernel.valkey import generation
from apps.keys.models import ApiKey
from apps.logs import rollup
from apps.organizations.models import Organization
from tests.log_sinks.sinks import SECRET, make_sink
from tests.logs.entries import entry, id_at, write
from tests.support.cast import World, make_key

ROUTING_KEY = "R0123456789ABCDEFGHIJKLMNOPQRSTU"


def make_rule(world: World, kind: str, **parameters: Any) -> AlertRule:
    """Make a rule the only one of Acme's."""
    watch(world.acme.id, timezone.now())
    AlertRule.objects.filter(organization=world.acme).delete()
    return add_rule(world, kind, **parameters)


def add_rule(world: World, kind: str, **parameters: Any) -> AlertRule:
    """Add a rule of Acme's."""
    return AlertRule.objects.create(organization=world.acme, kind=kind, parameters=parameters)


def add_resolved_alert(world: World, title: str, *, fired_at: datetime) -> Alert:
    """Add an alert of Acme's that was resolved after an hour."""
    rule = AlertRule.objects.filter(organization=world.acme).order_by("id")[0]
    text = "5% of 1,234 requests in the last 15 minutes took longer than 31.4 s; the rule's threshold is 30.0 s."
    return Alert.objects.create(
        organization=world.acme,
        rule=rule,
        kind="latency",
        subject=title,
        title=title,
        text=text,
        page="logs",
        fired_at=fired_at,
        resolved_at=fired_at + timedelta(hours=1),
    )


def make_destination(world: World, kind: str, url: str, **columns: Any) -> AlertDestination:
    """Make a destination of Acme's."""
    given: dict[str, Credentials] = {
        "webhook": WebhookSecret(SECRET),
        "slack": IncomingWebhook(url),
        "teams": IncomingWebhook(url),
        "pagerduty": RoutingKey(ROUTING_KEY),
    }
    destination = AlertDestination.objects.create(
        organization=columns.pop("organization", world.acme),
        name=columns.pop("name", kind),
        kind=kind,
        url=given[kind].masked if kind in {"slack", "teams"} else url,
        encrypted_credentials=encrypt_credentials(given[kind]),
        masked_credentials=given[kind].masked,
        **columns,
    )
    destination.refresh_from_db()
    return destination


def fire(world: World, now: datetime | None = None) -> list[Alert]:
    """Evaluate Acme's rules; return its alerts, oldest first."""
    evaluate([world.acme.id], now or timezone.now())
    return list(Alert.objects.filter(organization=world.acme).order_by("id"))


def set_balance(world: World, amount: str) -> None:
    """Set Acme's credits."""
    Organization.objects.filter(pk=world.acme.pk).update(credits=Decimal(amount))


def spend(key: ApiKey, cost: str, *, days: int = 0, count: int = 1, **fields: Any) -> None:
    """Log requests of a key, each at a cost, some days ago; some in the roll-up's days, the last one in its deltas."""
    moment = timezone.now() - timedelta(days=days)
    for number in range(count):
        if number == count - 1:
            rollup.roll_up()
        write(entry(key, id=id_at(moment - timedelta(seconds=number)), cost=Decimal(cost), **fields))


@dataclass(frozen=True)
class Scenario:
    """A rule, what makes it fire, the title of its alert, and what resolves it; None: an event."""

    kind: str
    parameters: dict[str, Any]
    begin: Callable[[World], None]
    title: str
    end: Callable[[World], None] | None = None
    severity: str = "warning"

    def __str__(self) -> str:
        return self.kind


def _key(world: World) -> ApiKey:
    return make_key(world.olivia, world.project, "Web shop").key


def _spend_credits(world: World) -> None:
    set_balance(world, "3.5")
    spend(_key(world), "7", count=2)


def _use_limit(world: World) -> None:
    key = _key(world)
    ApiKey.objects.filter(pk=key.pk).update(usage_limit=Decimal(10), usage=Decimal("8.25"))


def _raise_limit(world: World) -> None:
    ApiKey.objects.update(usage_limit=Decimal(100))


def _use_period_limit(world: World) -> None:
    key = _key(world)
    ApiKey.objects.filter(pk=key.pk).update(period="day", period_limit=Decimal(4))
    ledger.charge([Charge(world.acme.id, key.id, new_id(), Decimal(-3), Decimal(3))])


def _raise_period_limit(world: World) -> None:
    ApiKey.objects.update(period_limit=Decimal(40))


def _spend_more(world: World) -> None:
    key = _key(world)
    for days in (1, 2, 3):
        spend(key, "2", days=days)
    spend(key, "4", count=3)


def _fail(world: World) -> None:
    key = _key(world)
    write(*(entry(key, has_error=number < 12, status_code=502 if number < 12 else 200) for number in range(20)))


def _succeed(world: World) -> None:
    key = ApiKey.objects.get(description="Web shop")
    write(*(entry(key) for _ in range(100)))


def _be_slow(world: World) -> None:
    key = _key(world)
    write(*(entry(key, duration=9_000 if number < 5 else 100) for number in range(20)))


def _be_quick(world: World) -> None:
    key = ApiKey.objects.get(description="Web shop")
    write(*(entry(key, duration=100) for _ in range(200)))


def _leave_unused(world: World) -> None:
    ApiKey.objects.filter(pk=_key(world).pk).update(created_at=timezone.now() - timedelta(days=40))


def _use_key(world: World) -> None:
    spend(ApiKey.objects.get(description="Web shop"), "0.01")


def _retire(world: World) -> None:
    spend(_key(world), "0.01")
    last = (timezone.now() + timedelta(days=10)).astimezone(UTC).date()
    _set_retirement(last)


def _stay(world: World) -> None:
    _set_retirement(None)


def _set_retirement(last: date | None) -> None:
    ModelProvider.objects.filter(provider="openai", model="gpt-5").update(deactivated_at=last)
    generation.bump(generation.CATALOG)
    catalog_cache.refresh(generation.read_generation_token(generation.CATALOG))


def _change_price(world: World) -> None:
    spend(_key(world), "0.01")
    for model in ("gpt-5", "a-model-that-is-not-used"):
        PriceChange.objects.create(
            provider="openai", model=model, old={"input": "1.25"}, new={"input": "1.5"}, author="load_catalog"
        )


def _switch_off(world: World) -> None:
    make_sink(world, "webhook", "https://logs.example.com/hook", name="archive", status="inactive")


def _switch_on(world: World) -> None:
    world.acme.log_sinks.update(status="active")


def _fail_payment(world: World) -> None:
    Transaction.objects.create(
        organization=world.acme,
        type="credit_topup",
        amount=Decimal(25),
        status="failed",
        description="Top-up: declined",
    )


SCENARIOS = [
    Scenario(
        "balance_low",
        {"amount": "5"},
        _spend_credits,
        "The balance is $3.50, below $5.00",
        lambda world: set_balance(world, "20"),
        "error",
    ),
    Scenario(
        "balance_runway",
        {"days": 3},
        _spend_credits,
        "The balance lasts about 1.8 days",
        lambda world: set_balance(world, "20"),
    ),
    Scenario(
        "limit_share",
        {"percent": 80},
        _use_limit,
        "80% of the usage limit of the API key Web shop is used",
        _raise_limit,
    ),
    Scenario(
        "limit_share",
        {"percent": 50},
        _use_period_limit,
        "50% of the limit per day of the API key Web shop is used",
        _raise_period_limit,
    ),
    Scenario("daily_spend", {"factor": 3, "floor": "10"}, _spend_more, "Spending today is 6.0 times the usual"),
    Scenario(
        "error_rate",
        {"percent": 50, "aspect": "provider", "min_requests": 20, "name": ""},
        _fail,
        "60% of requests to the provider openai fail",
        _succeed,
        "critical",
    ),
    Scenario(
        "latency",
        {"milliseconds": 5_000, "aspect": "model", "min_requests": 20, "name": "gpt-5"},
        _be_slow,
        "The p95 latency of the model gpt-5 is 9.0 s",
        _be_quick,
    ),
    Scenario(
        "key_unused",
        {"days": 30},
        _leave_unused,
        "The API key Web shop has not been used for 30 days",
        _use_key,
        "info",
    ),
    Scenario(
        "model_retirement",
        {"days": 14},
        _retire,
        "The model gpt-5 at openai retires in 10 days, on ",
        _stay,
    ),
    Scenario("price_change", {}, _change_price, "The price of gpt-5 at openai changed", severity="info"),
    Scenario("integration_off", {}, _switch_off, "The log sink archive is switched off", _switch_on, severity="error"),
    Scenario("payment_failed", {}, _fail_payment, "A payment of $25.00 failed", severity="error"),
]

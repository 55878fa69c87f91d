"""`POST /limits/preview`: what a draft would have refused, from daily totals or request by request; and limits that are
set elsewhere in the list."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from apps.keys.models import ApiKey
from apps.limits import preview, set_elsewhere
from apps.limits.models import Limit, PlanLimit
from apps.logs import rollup
from tests.logs.entries import entry, id_at, write
from tests.support.cast import Caller, World, make_key, make_management_key, signed_in
from tests.support.shipped_catalog import stock

# At noon, so that a few minutes before are on the same day, and in one hour.
NOON = datetime.now(UTC).replace(hour=12, minute=30, second=0, microsecond=0) - timedelta(days=1)


@pytest.fixture
def adam(world: World) -> Caller:
    return signed_in(world.adam)


@pytest.fixture
def keys(world: World) -> list[ApiKey]:
    return [make_key(world.olivia, world.project, "shop").key, make_key(world.dana, world.project, "crawler").key]


def used(key: ApiKey, cost: str, *, days: int = 0, minutes: int = 0, **fields: Any) -> None:
    moment = NOON - timedelta(days=days, minutes=minutes)
    known = {"cost": Decimal(cost), "used_model": "gpt-5", "used_provider": "openai", **fields}
    write(entry(key, id=id_at(moment), **known))


def ask(caller: Caller, world: World, **changes: Any) -> Any:
    body = {"organizationId": str(world.acme.id), "scope": "organization", "counts": "usd", "window": "day", **changes}
    return caller.post("/limits/preview", body)


def replay(caller: Caller, world: World, **changes: Any) -> Any:
    answer = ask(caller, world, **changes)
    assert answer.status_code == 200, answer.content
    assert not Limit.objects.exists()
    return answer.json()["preview"]


def sums(shown: Any) -> tuple[int, str, int, str]:
    return shown["requests"], shown["cost"], shown["refusedRequests"], shown["refusedCost"]


def test_days_are_replayed_from_daily_totals(world: World, adam: Caller, keys: list[ApiKey]) -> None:
    for _ in range(3):
        used(keys[0], "1", days=2)
    rollup.roll_up()
    used(keys[1], "1", days=2)
    used(keys[0], "1", days=1)
    found = replay(adam, world, amount="3")
    # Four requests of a day cost 1 USD each: a quarter is beyond 3 USD.
    assert (sums(found["total"]), found["granularity"], found["isCut"]) == ((5, "5", 1, "1"), "day", False)
    earlier, later = found["days"]
    assert (earlier["date"], sums(earlier)) == ((NOON - timedelta(days=2)).date().isoformat(), (4, "4", 1, "1"))
    assert sums(later) == (1, "1", 0, "0")
    assert [(one["name"], one["refusedCost"]) for one in found["keys"]] == [("shop", "0.75"), ("crawler", "0.25")]
    assert [(one["name"], one["refusedCost"]) for one in found["members"]] == [
        (world.olivia.email, "0.75"),
        (world.dana.email, "0.25"),
    ]


@pytest.mark.parametrize(
    ("draft", "refused"),
    [
        ({"window": "lifetime", "amount": "3"}, (2, "2")),
        ({"rolling": 2, "amount": "3"}, (2, "2")),
        ({"counts": "requests", "amount": "4"}, (0, "0")),
        ({"counts": "requests", "amount": "0"}, (5, "5")),
        ({"scope": "model", "model": "gpt-*", "amount": "3"}, (1, "1")),
        ({"scope": "model", "model": "g_t-5", "amount": "0"}, (0, "0")),
        ({"scope": "provider", "provider": "groq", "amount": "0"}, (0, "0")),
        ({"scope": "key", "scopeId": "<crawler>", "amount": "0"}, (1, "1")),
        ({"scope": "member", "scopeId": "<olivia>", "amount": "2"}, (1, "1")),
        ({"action": "reroute", "rerouteModels": ["echo"], "amount": "3"}, (1, "1")),
    ],
)
def test_each_draft_counts_what_it_covers(
    world: World, adam: Caller, keys: list[ApiKey], draft: dict[str, Any], refused: tuple[int, str]
) -> None:
    for _ in range(3):
        used(keys[0], "1", days=2)
    used(keys[1], "1", days=2)
    used(keys[0], "1", days=1)
    stock()
    ids = {"<crawler>": str(keys[1].id), "<olivia>": str(world.olivia.id)}
    draft = {name: ids.get(value, value) if isinstance(value, str) else value for name, value in draft.items()}
    total = replay(adam, world, **draft)["total"]
    assert (total["refusedRequests"], total["refusedCost"]) == refused


def test_hours_are_replayed_request_by_request(
    world: World, adam: Caller, keys: list[ApiKey], monkeypatch: pytest.MonkeyPatch
) -> None:
    for minutes, cost in ((20, "2"), (15, "5"), (10, "1"), (5, "1")):
        used(keys[0], cost, minutes=minutes)
    used(keys[0], "4", minutes=60)
    found = replay(adam, world, window="hour", amount="4")
    # Refused requests do not count: after 2 USD, 5 do not fit, and 1 and 1 do.
    assert (sums(found["total"]), found["granularity"]) == ((5, "13", 1, "5"), "request")
    assert sums(replay(adam, world, window="hour", rolling=2, amount="4")["total"]) == (5, "13", 4, "9")
    monkeypatch.setattr(preview, "MAX_REQUESTS", 2)
    cut = replay(adam, world, window="minute", amount="0")
    assert (sums(cut["total"]), cut["isCut"], cut["first"]) == ((2, "2", 2, "2"), True, NOON.date().isoformat())


def test_what_cannot_be_replayed_or_created_is_refused_by_name(
    world: World, adam: Caller, keys: list[ApiKey], monkeypatch: pytest.MonkeyPatch
) -> None:
    for changes, path in (
        ({"scope": "end_user", "scopeId": str(world.project.id)}, "scope"),
        ({"scope": "project"}, "scopeId"),
        ({"amount": "0.0000000001"}, "amount"),
    ):
        answer = ask(adam, world, **{"amount": "1", **changes})
        assert (answer.status_code, answer.json()["issues"][0]["path"]) == (400, path)
    used(keys[0], "1")
    used(keys[1], "1")
    monkeypatch.setattr(preview, "MAX_TOTALS", 1)
    answer = ask(adam, world, amount="1")
    assert answer.json()["message"].startswith("There are too many keys to replay")
    reader = Caller(make_management_key(world.olivia, world.acme, "read").token)
    assert replay(reader, world, scope="key", scopeId=str(keys[0].id), amount="0")["total"]["refusedRequests"] == 1


def test_limits_of_keys_and_the_plan_are_in_the_same_list(
    world: World, adam: Caller, keys: list[ApiKey], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.RATE_LIMITS = {**settings.RATE_LIMITS, world.acme.plan: 70}
    ApiKey.objects.filter(pk=keys[0].pk).update(
        usage_limit=10, usage=Decimal("2.5"), period_limit=5, period="month", requests_per_minute=7
    )
    shown = adam.get("/limits", organizationId=str(world.acme.id)).json()
    assert shown["limits"] == []
    rows = [(one["kind"], one["scope"], one["name"], one["amount"], one["window"]) for one in shown["elsewhere"]]
    assert rows == [
        ("requestsPerMinute", "organization", "Plan", "70", "minute"),
        ("concurrency", "organization", "Plan", "20", "at once"),
        ("usageLimit", "key", "shop", "10", "lifetime"),
        ("periodLimit", "key", "shop", "5", "month"),
        ("requestsPerMinute", "key", "shop", "7", "minute"),
    ]
    of_usage, of_period = shown["elsewhere"][2:4]
    assert (of_usage["page"], of_usage["scopeId"]) == (f"keys/{keys[0].id}", str(keys[0].id))
    assert [of_usage["state"][name] for name in ("used", "held", "left", "resetsAt")] == ["2.5", "0", "7.5", None]
    assert of_period["state"]["left"] == "5"
    for name, fields in {
        "Fair use": {"amount": 9},
        "Fixed": {"amount": 3, "model": "gpt-5*", "is_fixed": True},
    }.items():
        PlanLimit.objects.create(plan=world.acme.plan, name=name, counts="requests", window="day", **fields)
    of_plan = adam.get("/limits", organizationId=str(world.acme.id)).json()["elsewhere"][2:4]
    assert [(one["kind"], one["scope"], one["name"], one["amount"], one["model"]) for one in of_plan] == [
        ("planDefault", "organization", "Fair use", "9", ""),
        ("planLimit", "model", "Fixed", "3", "gpt-5*"),
    ]
    assert [of_plan[0]["state"][name] for name in ("used", "held", "left")] == ["0", "0", "9"]
    PlanLimit.objects.all().delete()
    monkeypatch.setattr(set_elsewhere, "MAX_KEYS", 0)
    assert len(adam.get("/limits", organizationId=str(world.acme.id)).json()["elsewhere"]) == 2

"""Limits in the console: created once, shown with their state, changed, raised and deleted by admins."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from apps.kernel.ids import new_id
from apps.limits import counters
from apps.limits.applied import apply_rule, rule_of
from apps.limits.counters import CounterCharge
from apps.limits.models import Limit
from tests.limits.limits import NOW, count
from tests.support.cast import World, make_key
from tests.support.console_client import Visitor, page, words
from tests.support.shipped_catalog import stock


@pytest.fixture
def fields() -> dict[str, Any]:
    """The whole form, as a browser sends it."""
    return {
        "name": "Monthly budget",
        "owner": "organization",
        "endUser": "",
        "model": "",
        "counts": "usd",
        "amount": "500",
        "window": "lifetime",
        "timeZone": "UTC",
        "action": "refuse",
    }


def test_a_limit_is_created_once_and_shown_with_its_state(world: World, fields: dict[str, Any]) -> None:
    adam = Visitor(world.adam)
    assert "No limits" in words(adam.open(page(world.acme, "limits")))
    for _ in range(2):
        answer = adam.send(page(world.acme, "limits"), fields, once="one-click")
        assert (answer.status_code, answer["Location"]) == (303, page(world.acme, "limits"))
    limit = Limit.objects.get()
    assert (limit.scope, limit.amount, limit.action) == ("organization", 500, "refuse")
    one = apply_rule(rule_of(limit), "", NOW)
    counted = count([one], model_id="x", provider_id="sandbox", cost=Decimal("125.5"), input_tokens=0, output_tokens=0)
    counters.charge([CounterCharge(new_id(), world.acme.id, counted)])
    shown = adam.open(page(world.acme, "limits"))
    assert "Monthly budget The organization USD in all 125.5 of 500 374.5 –" in words(shown)
    assert '<rect class="used" width="25" height="4"/>' in shown.content.decode()


@pytest.mark.parametrize(
    ("owner", "shown"),
    [
        ("project:<project>", "Project Default Project"),
        ("end_user:<project>", "Each end user of Default Project"),
        ("member:<dana>", "Member dana@example.com"),
        ("key:<key>", "Key gw_dev_"),
    ],
)
def test_whose_requests_count_is_chosen_in_one_field(
    world: World, fields: dict[str, Any], owner: str, shown: str
) -> None:
    key = make_key(world.olivia, world.project).key
    ids = {"<project>": world.project.id, "<dana>": world.dana.id, "<key>": key.id}
    for name, identifier in ids.items():
        owner = owner.replace(name, str(identifier))
    adam = Visitor(world.adam)
    assert f'value="{owner}"' in adam.open(page(world.acme, "limits")).content.decode()
    assert adam.send(page(world.acme, "limits"), {**fields, "owner": owner}).status_code == 303
    limit = Limit.objects.get()
    assert limit.scope == owner.partition(":")[0]
    assert shown in words(adam.open(page(world.acme, f"limits/{limit.id}")))


def test_a_refused_form_says_why_beside_its_field_and_keeps_its_values(world: World, fields: dict[str, Any]) -> None:
    adam = Visitor(world.adam)
    answer = adam.send(page(world.acme, "limits"), {**fields, "timeZone": "Mars", "model": "gpt-5"})
    assert answer.status_code == 400
    assert "Must be a time zone such as Europe/Berlin" in words(answer)
    assert 'value="gpt-5"' in answer.content.decode()
    answer = adam.send(page(world.acme, "limits"), {**fields, "owner": f"project:{world.elsewhere_project.id}"})
    assert "Must be the id of a project of this organization" in words(answer)
    assert not Limit.objects.exists()


def test_a_limit_is_changed_raised_and_deleted(world: World, fields: dict[str, Any]) -> None:
    adam = Visitor(world.adam)
    adam.send(page(world.acme, "limits"), fields)
    limit = Limit.objects.get()
    here = page(world.acme, f"limits/{limit.id}")
    change = {
        "action_name": "change",
        "name": "Budget",
        "amount": "600",
        "action": "warn",
        "raisedAmount": "900",
        "raisedUntil": "2099-01-01",
        "raiseReason": "launch",
    }
    assert adam.send(here, change)["Location"] == here
    limit.refresh_from_db()
    assert (limit.name, limit.amount, limit.action, limit.raised_amount) == ("Budget", 600, "warn", 900)
    assert 'value="2099-01-01"' in adam.open(here).content.decode()
    refused = adam.send(here, {**change, "amount": "1.2.3"})
    assert (refused.status_code, "Must be an amount" in words(refused)) == (400, True)
    adam.send(here, {**change, "raisedAmount": "", "raisedUntil": "", "raiseReason": ""})
    limit.refresh_from_db()
    assert (limit.raised_amount, limit.raised_until, limit.raise_reason) == (None, None, "")
    assert adam.send(here, {"action_name": "paint"}).status_code == 400
    answer = adam.send(here, {"action_name": "delete"})
    assert (answer.status_code, answer["Location"]) == (303, page(world.acme, "limits"))
    assert not Limit.objects.exists()


def test_developers_and_members_of_others_see_no_limits(world: World, fields: dict[str, Any]) -> None:
    Visitor(world.adam).send(page(world.acme, "limits"), fields)
    limit = Limit.objects.get()
    assert Visitor(world.dana).open(page(world.acme, "limits")).status_code == 403
    assert Visitor(world.sam).open(page(world.elsewhere, f"limits/{limit.id}")).status_code in (403, 404)


def test_a_limit_of_a_provider_over_the_last_hours_and_one_from_a_date(world: World, fields: dict[str, Any]) -> None:
    stock()
    adam, path = Visitor(world.adam), page(world.acme, "limits")
    given = {**fields, "owner": "provider", "provider": "openai", "window": "hour", "rolling": "24", "startsOn": ""}
    assert adam.send(path, given, once="one").status_code == 303
    row = Limit.objects.get()
    assert (row.scope, row.provider, row.window, row.rolling, row.starts_on) == ("provider", "openai", "hour", 24, None)
    dated = {**fields, "name": "Billed", "provider": "", "window": "month", "rolling": "", "startsOn": "2026-01-15"}
    assert adam.send(path, dated, once="two").status_code == 303
    shown = words(adam.open(path))
    assert "at openai" in shown
    assert "USD in 24 hours" in shown
    assert "USD a month, from 2026-01-15 on" in shown
    wrong = adam.send(path, {**given, "name": "Other", "window": "month"}, once="three")
    assert (wrong.status_code, Limit.objects.count()) == (400, 2)
    assert "Not a field of the window month; the last hours or days may count" in words(wrong)

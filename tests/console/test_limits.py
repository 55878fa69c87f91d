"""Limits in the console: created once, shown with their state, changed, raised and deleted by admins."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.utils.html import escape

from apps.kernel.ids import new_id
from apps.limits import counters
from apps.limits.applied import apply_rule, rule_of
from apps.limits.counters import CounterCharge
from apps.limits.models import Limit
from tests.limits.limits import NOW, count
from tests.logs.entries import entry, write
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
    assert "Monthly budget The organization USD in all $125.50 of $500.00 $374.50 –" in words(shown)
    assert '<rect class="used" width="25" height="4"/>' in shown.content.decode()


def test_limits_are_on_the_pages_of_their_key_project_and_member_and_the_nearest_comes_first(world: World) -> None:
    key = make_key(world.dana, world.project).key
    known = {"organization": world.acme, "counts": "requests", "window": "lifetime", "amount": Decimal(10)}
    limits = [
        Limit.objects.create(**known, name="a key's", scope="key", api_key=key),
        Limit.objects.create(**known, name="b project's", scope="project", project=world.project),
        Limit.objects.create(**known, name="c each", scope="end_user", project=world.project),
        Limit.objects.create(**known, name="d all", scope="organization"),
        Limit.objects.create(**known, name="e member's", scope="member", member=world.dana),
    ]
    one = apply_rule(rule_of(limits[1]), "", NOW)
    counted = count([one], model_id="x", provider_id="y", cost=Decimal(0), input_tokens=0, output_tokens=0)
    counters.charge([CounterCharge(new_id(), world.acme.id, counted)])

    def found(user: Any, path: str) -> list[str]:
        """Return the names of the limits on a page; those that it links to, with a mark."""
        text = Visitor(user).open(page(world.acme, path)).content.decode()
        places = {one.name: text.find(escape(one.name)) for one in limits}
        shown = sorted((place, name) for name, place in places.items() if place >= 0)
        links = {one.name for one in limits if f"/limits/{one.id}" in text}
        return [f"{name} >" if name in links else name for _, name in shown]

    assert found(world.adam, "limits") == ["b project's >", "a key's >", "d all >", "e member's >", "c each >"]
    assert found(world.adam, f"keys/{key.id}") == ["a key's >"]
    assert found(world.dana, f"keys/{key.id}") == ["a key's"]
    assert found(world.dana, f"projects/{world.project.id}") == ["b project's", "c each"]
    dana, adam = (world.acme.memberships.get(user=user) for user in (world.dana, world.adam))
    assert found(world.adam, f"members/{dana.id}") == ["e member's >"]
    assert found(world.dana, f"members/{dana.id}") == ["e member's"]
    assert "Limits None: the limits of the organization hold." in words(
        Visitor(world.adam).open(page(world.acme, f"members/{adam.id}"))
    )
    assert Visitor(world.dana).open(page(world.acme, f"members/{adam.id}")).status_code == 403
    # The list leads to the pages that its reader may open.
    for user, linked in ((world.adam, [adam, dana]), (world.dana, [dana])):
        listed = Visitor(user).open(page(world.acme, "members")).content.decode()
        assert [one for one in (adam, dana) if page(world.acme, f"members/{one.id}") in listed] == linked


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


def test_a_limit_that_reroutes_names_its_models_one_a_line(world: World, fields: dict[str, Any]) -> None:
    stock()
    adam, path = Visitor(world.adam), page(world.acme, "limits")
    given = {**fields, "action": "reroute", "rerouteModels": "echo-fast\njson\n"}
    assert adam.send(path, given).status_code == 303
    limit = Limit.objects.get()
    assert (limit.action, limit.reroute_models) == ("reroute", ["echo-fast", "json"])
    assert "reroutes" in words(adam.open(path))
    here = page(world.acme, f"limits/{limit.id}")
    assert "echo-fast\njson</textarea>" in adam.open(here).content.decode()
    # The field stays in the form of another action.
    change = {"action_name": "change", "name": "B", "amount": "1", "action": "refuse", "rerouteModels": "json"}
    assert adam.send(here, change)["Location"] == here
    limit.refresh_from_db()
    assert (limit.action, limit.reroute_models) == ("refuse", [])


def test_a_draft_is_replayed_and_keeps_its_values(world: World, fields: dict[str, Any]) -> None:
    key = make_key(world.olivia, world.project, "shop").key
    write(*(entry(key, cost=Decimal(2)) for _ in range(2)))
    adam, path = Visitor(world.adam), page(world.acme, "limits")
    shown = adam.send(path, {**fields, "name": "", "amount": "3", "model": "gpt-5", "preview": "true"})
    assert shown.status_code == 200
    text = words(shown)
    assert "1 of 2 requests and $1.00 of $4.00 would have been beyond it." in text
    assert "Counted from daily totals (UTC)" in text
    assert "shop 1 $1.00" in text
    assert 'value="gpt-5"' in shown.content.decode()
    refused = adam.send(path, {**fields, "amount": "much", "preview": "true"})
    assert (refused.status_code, "Must be an amount" in words(refused)) == (400, True)
    assert not Limit.objects.exists()


def test_limits_of_keys_and_the_plan_are_listed_with_links(world: World) -> None:
    key = make_key(world.olivia, world.project, "shop").key
    type(key).objects.filter(pk=key.pk).update(usage_limit=10, usage=Decimal("2.5"))
    shown = Visitor(world.adam).open(page(world.acme, "limits"))
    assert "shop Total limit, USD USD in all $2.50 of $10.00" in words(shown)
    assert page(world.acme, f"keys/{key.id}") in shown.content.decode()
    assert "Plan Requests a minute Requests a minute 60" in words(shown)

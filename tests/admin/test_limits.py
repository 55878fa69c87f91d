"""Limits in the admin: those of all organizations with their state, set with the API's checks; and limits of plans."""

from __future__ import annotations

import time
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from apps.kernel.ids import new_id
from apps.limits import admin as limits_admin
from apps.limits import counters
from apps.limits.applied import apply_rule, rule_of
from apps.limits.counters import CounterCharge
from apps.limits.models import Limit, PlanLimit
from apps.organizations.models import AuditEntry
from tests.admin.test_customers import filled, operator, page
from tests.limits.limits import count
from tests.support.cast import World

__all__ = ["operator"]
LIST, ADD = "limits_limit_changelist", "limits_limit_add"


def make_limit(organization: Any, **fields: Any) -> Limit:
    known = {"name": "Daily", "scope": "organization", "counts": "usd", "window": "day", "amount": Decimal(10)}
    return Limit.objects.create(organization=organization, **{**known, **fields})


def spend(limit: Limit, cost: str) -> None:
    one = apply_rule(rule_of(limit), "", time.time())
    counted = count([one], model_id="x", provider_id="y", cost=Decimal(cost), input_tokens=0, output_tokens=0)
    counters.charge([CounterCharge(new_id(), limit.organization_id, counted)])


def listed(operator: Client, **query: str) -> list[tuple[str, ...]]:
    """Return the name, subject and state of the limits in the list."""
    shown = operator.get(page(LIST), query).context["cl"]
    view = shown.model_admin
    columns = (view.subject, view.amount_in_force, view.used, view.held, view.left)
    return [(row.name, *(column(row) for column in columns)) for row in shown.result_list]


def test_limits_of_all_organizations_are_listed_with_their_state(operator: Client, world: World) -> None:
    daily = make_limit(world.acme)
    spend(daily, "2.5")
    make_limit(world.acme, name="Fast", scope="model", model="gpt-5*", counts="requests")
    make_limit(world.elsewhere, name="Theirs", raised_amount=20, raised_until="2099-01-01T00:00:00Z")
    make_limit(world.acme, name="Visitors", scope="end_user", project=world.project)
    ours = ("Daily", "-", "10", "2.5", "0", "7.5")
    assert listed(operator, q="Theirs") == [("Theirs", "-", "20", "0", "0", "20")]
    assert listed(operator, q=str(world.acme.pk), scope="organization") == [ours]
    assert listed(operator, organization__id__exact=str(world.acme.pk), counts="usd", scope__exact="organization") == [
        ours
    ]
    assert [one[0] for one in listed(operator, q="gpt-5")] == ["Fast"]
    assert [one[2:] for one in listed(operator, q="Visitors")] == [("10", "", "", "")]
    assert {one[0] for one in listed(operator, organization__plan__exact=world.acme.plan)} >= {"Daily", "Visitors"}
    opened = operator.get(page("limits_limit_change", daily.pk)).content.decode()
    assert "7.5" in opened
    tab = operator.get(page("organizations_organization_limits", world.acme.pk)).context["table"]["rows"]
    assert [row[1:] for row in tab][-1] == ("organization", "usd a day", "10", "refuse")


def test_an_operator_creates_a_limit_with_the_apis_checks(operator: Client, world: World) -> None:
    path = page(ADD)
    form = {
        "organization": str(world.acme.pk),
        "name": "Search",
        "scope": "project",
        "scope_id": "x",
        "counts": "requests",
        "window": "month",
        "time_zone": "Mars",
        "amount": "1000",
        "action": "refuse",
    }
    wrong = operator.post(path, form)
    assert set(wrong.context["adminform"].form.errors) == {"time_zone"}
    form["time_zone"] = "Europe/Berlin"
    refused = operator.post(path, form).context["adminform"].form
    assert "scopeId: Must be the id of a project of this organization" in str(refused.non_field_errors())
    for strange in (world.elsewhere_project.pk, world.dana.pk):
        assert operator.post(path, {**form, "scope_id": str(strange)}).status_code == 200
    assert not Limit.objects.exists()
    assert not AuditEntry.objects.filter(action="limit.create").exists()
    made = operator.post(path, {**form, "scope_id": str(world.project.pk), "reroute_models": ""})
    assert made.status_code == 302
    limit = Limit.objects.get()
    assert (limit.project_id, limit.time_zone, limit.amount) == (world.project.pk, "Europe/Berlin", 1_000)
    entry = AuditEntry.objects.latest("id")
    assert (entry.action, entry.organization_id, entry.actor_email) == (
        "limit.create",
        world.acme.pk,
        "op@example.com",
    )


def test_a_change_is_checked_and_stands_in_the_audit_log(operator: Client, world: World) -> None:
    limit = make_limit(world.acme)
    make_limit(world.acme, name="Other")
    path = page("limits_limit_change", limit.pk)
    for field, value in {"amount": "-1", "name": "Other", "raised_amount": "20", "reroute_models": "echo"}.items():
        assert operator.post(path, filled(operator, path, **{field: value})).status_code == 200, field
    limit.refresh_from_db()
    assert (limit.amount, limit.name, limit.raised_amount) == (10, "Daily", None)
    assert not AuditEntry.objects.filter(action="limit.update").exists()
    raised = {
        "raised_amount": "20",
        "raised_until_0": "2099-01-01",
        "raised_until_1": "00:00:00",
        "raise_reason": "fair",
    }
    assert operator.post(path, filled(operator, path, amount="12.5", **raised)).status_code == 302
    limit.refresh_from_db()
    assert (limit.amount, limit.raised_amount, limit.raise_reason) == (Decimal("12.5"), 20, "fair")
    entry = AuditEntry.objects.latest("id")
    assert (entry.action, entry.actor_type) == ("limit.update", "admin")
    assert entry.details["changes"]["amount"] == {"from": "10", "to": "12.5"}
    history = operator.get(page("limits_limit_history", limit.pk)).context["table"]["rows"]
    assert [row[1] for row in history] == ["limit.update"]
    assert operator.post(page("limits_limit_delete", limit.pk), {"post": "yes"}).status_code == 302
    assert [one.name for one in Limit.objects.all()] == ["Other"]
    assert AuditEntry.objects.latest("id").action == "limit.delete"


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"amount": "-1"}, "amount"),
        ({"model": "a*b*c*d*e"}, "model"),
        ({"time_zone": "Mars"}, "time_zone"),
        ({"provider": "unknown"}, "provider"),
        ({"action": "reroute"}, "reroute_models"),
        ({"window": "lifetime"}, "window"),
    ],
)
def test_a_limit_of_a_plan_is_checked(operator: Client, fields: dict[str, str], wrong: str) -> None:
    form = {"plan": "free", "name": "Fair use", "counts": "requests", "window": "day", "time_zone": "UTC"}
    form |= {"amount": "100", "action": "refuse", **fields}
    refused = operator.post(page("limits_planlimit_add"), form)
    assert (refused.status_code, set(refused.context["adminform"].form.errors)) == (200, {wrong})
    assert not PlanLimit.objects.exists()


def test_an_operator_sets_limits_of_plans(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    form = {"plan": "free", "name": "Fair use", "counts": "requests", "window": "day", "time_zone": "UTC"}
    form |= {"amount": "100", "action": "refuse"}
    assert operator.post(page("limits_planlimit_add"), form).status_code == 302
    limit = PlanLimit.objects.get()
    assert (limit.plan, limit.amount, limit.is_fixed, limit.reroute_models) == ("free", 100, False, [])
    path = page("limits_planlimit_change", limit.pk)
    assert operator.post(path, filled(operator, path, amount="50", plan="pro", is_fixed="on")).status_code == 302
    limit.refresh_from_db()
    assert (limit.plan, limit.amount, limit.is_fixed) == ("free", 50, True)
    PlanLimit.objects.create(plan="free", name="Other", counts="usd", window="day", amount=1)
    taken = operator.post(path, filled(operator, path, name="Other"))
    assert set(taken.context["adminform"].form.errors) == {"name"}
    form["name"] = "third"
    monkeypatch.setattr(limits_admin, "MAX_PLAN_LIMITS", 2)
    refused = operator.post(page("limits_planlimit_add"), form)
    assert refused.context["adminform"].form.errors == {"plan": ["Maximum 2 limits per plan"]}
    assert PlanLimit.objects.count() == 2
    history = operator.get(page("limits_planlimit_history", limit.pk)).content.decode()
    assert "Amount: 100 → 50" in history

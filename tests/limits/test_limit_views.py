"""`/limits`: creating, listing, changing and deleting limits; bounds and names of fields."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.limits import actions
from apps.limits.models import Limit
from apps.organizations.models import AuditEntry
from tests.support.cast import Caller, World, make_key, make_management_key, signed_in


@pytest.fixture
def adam(world: World) -> Caller:
    return signed_in(world.adam)


def create(caller: Caller, world: World, **changes: Any) -> Any:
    body = {
        "organizationId": str(world.acme.id),
        "name": "Budget",
        "scope": "organization",
        "counts": "usd",
        "window": "month",
        "amount": "100",
        **changes,
    }
    return caller.post("/limits", {name: value for name, value in body.items() if value is not ...})


def test_a_limit_is_created_listed_changed_and_deleted(world: World, adam: Caller) -> None:
    response = create(adam, world, timeZone="Europe/Berlin")
    assert response.status_code == 200, response.content
    row = Limit.objects.get()
    shown = response.json()["limit"]
    state = shown["state"]
    assert {name: value for name, value in shown.items() if name not in {"createdAt", "updatedAt", "state"}} == {
        "id": str(row.id),
        "organizationId": str(world.acme.id),
        "name": "Budget",
        "scope": "organization",
        "scopeId": None,
        "endUser": "",
        "model": "",
        "provider": "",
        "counts": "usd",
        "window": "month",
        "rolling": None,
        "startsOn": None,
        "timeZone": "Europe/Berlin",
        "amount": "100",
        "action": "refuse",
        "rerouteModels": [],
        "raisedAmount": None,
        "raisedUntil": None,
        "raiseReason": "",
    }
    assert (state["amount"], state["used"], state["held"], state["left"]) == ("100", "0", "0", "100")
    assert state["resetsAt"] > state["startsAt"]
    assert adam.get("/limits", organizationId=str(world.acme.id)).json()["limits"] == [shown]
    changes = {"raisedAmount": "150.5", "raisedUntil": "2099-01-01", "raiseReason": "launch week"}
    changed = adam.send("PATCH", f"/limits/{row.id}", changes).json()["limit"]
    assert (changed["raisedAmount"], changed["raiseReason"], changed["state"]["amount"]) == (
        "150.5",
        "launch week",
        "150.5",
    )
    ended = adam.send("PATCH", f"/limits/{row.id}", {"raisedAmount": None, "amount": "90"}).json()["limit"]
    names = ("amount", "raisedAmount", "raisedUntil", "raiseReason")
    assert [ended[name] for name in names] == ["90", None, None, ""]
    assert adam.send("DELETE", f"/limits/{row.id}", {}).json() == {"message": "Limit deleted"}
    assert not Limit.objects.exists()
    assert list(AuditEntry.objects.filter(resource_type="limit").order_by("id").values_list("action", flat=True)) == [
        "limit.create",
        "limit.update",
        "limit.update",
        "limit.delete",
    ]
    assert adam.send("DELETE", f"/limits/{row.id}", {}).status_code == 404


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        (
            {"scope": "tag"},
            "scope",
            "Must be one of: organization, team, project, member, key, end_user, model, provider",
        ),
        ({"scope": "project"}, "scopeId", "Required"),
        ({"scope": "project", "scopeId": "x"}, "scopeId", "Must be the id of a project of this organization"),
        ({"scope": "end_user", "scopeId": "<strange>"}, "scopeId", "Must be the id of a project of this organization"),
        ({"scope": "member", "scopeId": "<sam>"}, "scopeId", "Must be the id of a member of this organization"),
        ({"scope": "key", "scopeId": "<sams key>"}, "scopeId", "Must be the id of a key of this organization"),
        ({"scope": "key", "scopeId": "x"}, "scopeId", "Must be the id of a key of this organization"),
        ({"scopeId": "x"}, "scopeId", "Not a field of the scope organization"),
        ({"scope": "model"}, "model", "Required"),
        ({"scope": "provider"}, "provider", "Required"),
        ({"scope": "provider", "scopeId": "x", "provider": "openai"}, "scopeId", "Not a field of the scope provider"),
        ({"provider": "nowhere"}, "provider", "Must be the id of a provider, or custom: and the name of your own"),
        ({"provider": "custom:none"}, "provider", "Must be the id of a provider, or custom: and the name of your own"),
        ({"window": "hour", "rolling": 1}, "rolling", "Must be at least 2"),
        ({"window": "hour", "rolling": 32}, "rolling", "Must be at most 31"),
        (
            {"window": "month", "rolling": 3},
            "rolling",
            "Not a field of the window month; the last hours or days may count",
        ),
        (
            {"window": "day", "startsOn": "2026-01-15"},
            "startsOn",
            "Not a field of the window day; weeks and months may begin on a date",
        ),
        ({"startsOn": "15"}, "startsOn", "Must be a day as YYYY-MM-DD"),
        ({"model": "a*b*c*d*e"}, "model", "Must be a model's id, or a pattern with at most three `*`"),
        ({"model": "gpt-[45]"}, "model", "Must be a model's id, or a pattern with at most three `*`"),
        ({"endUser": "u1"}, "endUser", "Not a field of the scope organization"),
        ({"counts": "euros"}, "counts", "Must be one of: usd, requests, tokens, input_tokens, output_tokens"),
        ({"window": "year"}, "window", "Must be one of: minute, hour, day, week, month, lifetime"),
        ({"timeZone": "Mars/Base"}, "timeZone", "Must be a time zone such as Europe/Berlin"),
        ({"amount": 5}, "amount", 'Must be an amount such as "12.50", at least 0'),
        ({"amount": "1000001"}, "amount", "Must be at most 1000000 USD"),
        ({"amount": "0.0000000001"}, "amount", "Must have at most nine digits after the point"),
        ({"counts": "tokens", "amount": "1.5"}, "amount", "Must be a whole number of tokens"),
        ({"counts": "requests", "amount": ...}, "amount", "Required"),
        ({"action": "block"}, "action", "Must be one of: refuse, warn, reroute"),
        ({"action": "reroute"}, "rerouteModels", "Required"),
        ({"action": "reroute", "rerouteModels": ["nothing"]}, "rerouteModels", "No model has the id nothing"),
        ({"rerouteModels": ["nothing"]}, "rerouteModels", "Not a field of the action refuse"),
        (
            {"action": "reroute", "rerouteModels": [str(number) for number in range(6)]},
            "rerouteModels",
            "Must hold at most 5 items",
        ),
        ({"raisedAmount": "200"}, "raisedUntil", "Required"),
        ({"raisedUntil": "2099-01-01", "raiseReason": "x"}, "raisedAmount", "Required"),
        ({"raisedAmount": "200", "raisedUntil": "2020-01-01"}, "raisedUntil", "Must be in the future"),
        ({"raisedAmount": "200", "raisedUntil": "2099-01-01"}, "raiseReason", "Required"),
        (
            {"raisedAmount": "50", "raisedUntil": "2099-01-01", "raiseReason": "x"},
            "raisedAmount",
            "Must be above the amount",
        ),
        ({"name": "x" * 101}, "name", "Must be at most 100 characters long"),
    ],
)
def test_a_bad_field_is_named(world: World, adam: Caller, changes: dict[str, Any], path: str, message: str) -> None:
    ids = {
        "<strange>": str(world.elsewhere_project.id),
        "<sam>": str(world.sam.id),
        "<sams key>": str(make_key(world.sam, world.elsewhere_project).key.id),
    }
    changes = {name: ids.get(value, value) if isinstance(value, str) else value for name, value in changes.items()}
    response = create(adam, world, **changes)
    assert response.status_code == 400, response.content
    assert {"path": path, "message": message} in response.json()["issues"]
    assert not Limit.objects.exists()


def test_a_limit_with_a_raise_that_is_over_may_be_changed(world: World, adam: Caller) -> None:
    limit = create(adam, world).json()["limit"]["id"]
    past = timezone.now() - timedelta(days=1)
    Limit.objects.update(raised_amount=200, raised_until=past, raise_reason="launch")
    changed = adam.send("PATCH", f"/limits/{limit}", {"amount": "300"})
    assert (changed.status_code, changed.json()["limit"]["state"]["amount"]) == (200, "300")
    refused = adam.send("PATCH", f"/limits/{limit}", {"raisedAmount": "400"})
    assert refused.json()["issues"] == [{"path": "raisedUntil", "message": "Must be in the future"}]


def test_names_are_unique_and_limits_are_bounded(world: World, adam: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    assert create(adam, world).status_code == 200
    issue = {"path": "name", "message": "Another limit has this name"}
    assert create(adam, world).json()["issues"] == [issue]
    other = create(adam, world, name="Other").json()["limit"]["id"]
    assert adam.send("PATCH", f"/limits/{other}", {"name": "Budget"}).json()["issues"] == [issue]
    monkeypatch.setattr(actions, "MAX_APPLYING", 2)
    refused = create(adam, world, name="Third")
    message = "More than 2 limits would hold for one request; delete one first"
    assert (refused.status_code, refused.json()["message"]) == (400, message)
    monkeypatch.setattr(actions, "MAX_LIMITS", 2)
    refused = create(adam, world, name="Third")
    assert (refused.status_code, refused.json()["message"]) == (400, "Maximum 2 limits per organization")
    assert Limit.objects.count() == 2


def test_limits_of_other_projects_members_and_keys_do_not_add_up(world: World) -> None:
    made = [
        *(Limit(scope="organization") for _ in range(2)),
        Limit(scope="model", model="x"),
        *(Limit(scope="project", project=world.project) for _ in range(3)),
        Limit(scope="project", project=world.elsewhere_project),
        *(Limit(scope="member", member_id=world.dana.id) for _ in range(2)),
        Limit(scope="member", member_id=world.adam.id),
        Limit(scope="end_user", project=world.project),
        *(Limit(scope="end_user", project=world.project, end_user=name) for name in ("a", "b", "b")),
    ]
    assert actions.most_applying(made) == 3 + 3 + 2 + (1 + 2)


def test_a_management_key_needs_the_scope_limits(world: World) -> None:
    reader, manager = (
        Caller(make_management_key(world.olivia, world.acme, scope).token) for scope in ("read", "limits")
    )
    assert create(reader, world).status_code == 403
    assert not Limit.objects.exists()
    assert create(manager, world).status_code == 200
    assert len(reader.get("/limits", organizationId=str(world.acme.id)).json()["limits"]) == 1

"""`/v1/keys`: API keys managed in OpenRouter's words, with a management key."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.kernel.rest.routes import route_table
from apps.keys.actions import change_api_key
from apps.keys.models import ApiKey
from apps.organizations.models import ManagementScope, Project
from tests.api.test_account_reports import charge, conforms
from tests.support.cast import Caller, World, make_key, make_management_key, make_organization, signed_in

FIELDS = {
    *("hash", "name", "label", "disabled", "limit", "limit_remaining", "limit_reset", "include_byok_in_limit"),
    *("usage", "usage_daily", "usage_weekly", "usage_monthly"),
    *("byok_usage", "byok_usage_daily", "byok_usage_weekly", "byok_usage_monthly"),
    *("workspace_id", "creator_user_id", "external_user", "expires_at", "created_at", "updated_at", "last_used_at"),
}


@pytest.fixture
def program(world: World) -> Caller:
    """A program with a management key that may do everything but change usage limits."""
    scopes = [scope for scope in ManagementScope if scope != ManagementScope.LIMITS]
    return Caller(make_management_key(world.olivia, world.acme, *scopes).token)


def limits(key_id: str) -> tuple[Any, ...]:
    key = ApiKey.objects.get(pk=key_id)
    return key.usage_limit, key.period_limit, key.period


def test_a_key_is_created_shown_changed_and_deleted(world: World, program: Caller) -> None:
    made = program.post("/v1/keys", {"name": "Customer 7", "limit": 12.5, "limit_reset": "monthly"})
    assert made.status_code == 201
    assert set(made.json()) == {"data", "key"}
    shown = made.json()["data"]
    assert set(shown) == FIELDS
    key = ApiKey.objects.get(description="Customer 7")
    assert made.json()["key"].endswith(key.last_four)
    assert Caller(made.json()["key"]).get("/v1/key").status_code == 200
    assert (shown["hash"], shown["label"], shown["workspace_id"]) == (
        str(key.id),
        key.masked_token,
        str(world.project.id),
    )
    assert (shown["limit"], shown["limit_remaining"], shown["limit_reset"]) == (12.5, 12.5, "monthly")
    assert (shown["disabled"], shown["include_byok_in_limit"], shown["usage"], shown["expires_at"]) == (
        False,
        True,
        0,
        None,
    )
    assert limits(key.id) == (None, Decimal("12.5"), "month")
    read = program.get(f"/v1/keys/{key.id}").json()
    conforms("/v1/keys/{keyHash}", read)
    assert read == {"data": shown}
    changed = program.send("PATCH", f"/v1/keys/{key.id}", {"name": "Customer 8", "disabled": True}).json()["data"]
    assert (changed["name"], changed["disabled"], changed["limit"]) == ("Customer 8", True, 12.5)
    assert ApiKey.objects.get(pk=key.id).status == ApiKey.Status.INACTIVE
    assert program.send("DELETE", f"/v1/keys/{key.id}", {}).json() == {"deleted": True}
    assert program.get(f"/v1/keys/{key.id}").status_code == 404
    assert Caller(made.json()["key"]).get("/v1/key").status_code == 401


@pytest.mark.parametrize("path", ["/api/v1/keys", "/api/v1/keys/0198"])
def test_openrouters_paths_are_the_same(path: str) -> None:
    canonical = route_table().canonical(path)
    assert canonical is not None
    assert canonical.path == path.removeprefix("/api")


def test_keys_are_listed_newest_first_without_disabled_ones(world: World, program: Caller) -> None:
    other = Project.objects.create(organization=world.acme, name="Other")
    keys = [make_key(world.dana, project, name).key for project, name in ((world.project, "a"), (other, "b"))]
    keys.append(make_key(world.olivia, world.project, "c").key)
    change_api_key(key=keys[0], changes={"status": ApiKey.Status.INACTIVE})
    make_key(world.sam, world.elsewhere_project, "not Acme's")

    def listed(**query: str) -> list[str]:
        body = program.get("/v1/keys", **query).json()
        conforms("/v1/keys", body)
        return [one["name"] for one in body["data"]]

    assert listed() == ["c", "b"]
    assert listed(include_disabled="true") == ["c", "b", "a"]
    assert listed(include_disabled="true", offset="2") == ["a"]
    assert listed(workspace_id=str(world.project.id)) == ["c"]
    assert program.get("/v1/keys", workspace_id=str(world.elsewhere_project.id)).status_code == 403


def test_the_spending_of_many_keys_takes_one_query(world: World, program: Caller) -> None:
    first = make_key(world.dana, world.project, "first", Decimal(5)).key
    charge(first, "0.25")
    charge(first, "0.5", mode="api-keys")
    program.get("/v1/keys")
    with CaptureQueriesContext(connection) as one:
        [shown] = program.get("/v1/keys").json()["data"]
    assert (shown["usage"], shown["usage_daily"], shown["byok_usage"], shown["byok_usage_monthly"]) == (
        0.25,
        0.25,
        0.5,
        0.5,
    )
    assert (shown["limit"], shown["limit_remaining"]) == (5, 4.25)
    second = make_key(world.dana, world.project, "second").key
    charge(second, "2")
    with CaptureQueriesContext(connection) as two:
        body = program.get("/v1/keys").json()["data"]
    assert [(key["name"], key["usage"]) for key in body] == [("second", 2), ("first", 0.25)]
    assert len(two) == len(one)


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"include_byok_in_limit": False}, "include_byok_in_limit", "limits count what your own provider keys pay"),
        ({"creator_user_id": "user_1"}, "creator_user_id", "Not supported here"),
        ({"external": {"user": "u"}}, "external", "Not supported here"),
        ({"limit": -1}, "limit", "at least 0"),
        ({"limit": "much"}, "limit", "Must be an amount"),
        ({"limit_reset": "yearly", "limit": 1}, "limit_reset", "Must be one of: hourly, daily, weekly, monthly"),
        ({"limit_reset": "daily"}, "limit", "Required with limit_reset"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "expires_at", "Must be in the future"),
        ({"name": ""}, "name", "Must not be blank"),
    ],
    ids=str,
)
def test_what_has_no_meaning_here_is_refused_by_name(
    world: World, program: Caller, fields: dict[str, Any], param: str, words: str
) -> None:
    answer = program.post("/v1/keys", {"name": "Customer 7", **fields})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert words in answer.json()["error"]["message"]
    assert not ApiKey.objects.filter(project__organization=world.acme).exists()


@pytest.mark.parametrize(
    ("before", "body", "after"),
    [
        ((None, None, ""), {"limit": 3, "limit_reset": "weekly"}, (None, Decimal(3), "week")),
        ((None, Decimal(2), "day"), {"limit": 3}, (None, Decimal(3), "day")),
        ((None, Decimal(2), "day"), {"limit_reset": "monthly"}, (None, Decimal(2), "month")),
        ((None, Decimal(2), "day"), {"limit": None}, (None, None, "")),
        # The usage limit beside it is not the one that OpenRouter's clients see.
        ((Decimal(9), Decimal(2), "day"), {"limit": 3}, (Decimal(9), Decimal(3), "day")),
        ((Decimal(9), Decimal(2), "day"), {"limit": None}, (Decimal(9), None, "")),
    ],
    ids=str,
)
def test_a_limit_is_changed_where_the_key_has_it(
    world: World, program: Caller, before: tuple[Any, ...], body: dict[str, Any], after: tuple[Any, ...]
) -> None:
    key = make_key(world.dana, world.project).key
    names = ("usage_limit", "period_limit", "period")
    change_api_key(key=key, changes=dict(zip(names, before, strict=True)))
    assert program.send("PATCH", f"/v1/keys/{key.id}", body).status_code == 200
    assert limits(str(key.id)) == after


def test_a_limit_that_never_resets_needs_the_scope_of_limits(world: World, program: Caller) -> None:
    key = make_key(world.dana, world.project, usage_limit=Decimal(5)).key
    for body in ({"limit": 50}, {"limit": None}, {"limit_reset": "daily"}):
        refused = program.send("PATCH", f"/v1/keys/{key.id}", body)
        assert refused.status_code == 403
        assert "the scope `limits`" in refused.json()["message"]
        assert limits(str(key.id)) == (Decimal(5), None, "")
    allowed = Caller(make_management_key(world.olivia, world.acme, "keys", "limits").token)
    assert allowed.send("PATCH", f"/v1/keys/{key.id}", {"limit": 50}).json()["data"]["limit"] == 50
    assert limits(str(key.id)) == (Decimal(50), None, "")
    assert allowed.send("PATCH", f"/v1/keys/{key.id}", {"limit": 7, "limit_reset": "daily"}).status_code == 200
    assert limits(str(key.id)) == (None, Decimal(7), "day")


def test_nothing_to_change_is_refused(world: World, program: Caller) -> None:
    key = make_key(world.dana, world.project).key
    answer = program.send("PATCH", f"/v1/keys/{key.id}", {"include_byok_in_limit": True})
    assert answer.status_code == 400
    assert "Give at least one of name, disabled, limit and limit_reset" in answer.json()["message"]


def test_a_key_belongs_to_the_oldest_active_project_or_the_one_that_is_named(world: World, program: Caller) -> None:
    other = Project.objects.create(organization=world.acme, name="Other")
    named = program.post("/v1/keys", {"name": "named", "workspace_id": str(other.id)}).json()["data"]
    assert named["workspace_id"] == str(other.id)
    Project.objects.filter(pk=world.project.id).update(status=Project.Status.ARCHIVED)
    assert program.post("/v1/keys", {"name": "unnamed"}).json()["data"]["workspace_id"] == str(other.id)
    Project.objects.filter(pk=other.id).update(status=Project.Status.ARCHIVED)
    answer = program.post("/v1/keys", {"name": "nowhere"})
    assert (answer.status_code, answer.json()["message"]) == (404, "The organization has no active project")
    assert ApiKey.objects.filter(project__organization=world.acme).count() == 2


def test_a_person_of_several_organizations_names_the_project(world: World) -> None:
    make_organization(owner=world.olivia, name="Second")
    answer = signed_in(world.olivia).post("/v1/keys", {"name": "somewhere"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "workspace_id")
    assert not ApiKey.objects.exists()


def test_a_repeated_request_makes_one_key(world: World, program: Caller) -> None:
    headers = {"Idempotency-Key": "customer-7"}
    answers = [program.post("/v1/keys", {"name": "Customer 7"}, **headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json() == answers[1].json()
    assert ApiKey.objects.count() == 1


def test_amounts_are_numbers_with_every_digit_also_in_a_repeated_answer(world: World, program: Caller) -> None:
    body, headers = {"name": "Customer 7", "limit": "123456789.123456789012"}, {"Idempotency-Key": "customer-7"}
    first, second = (program.post("/v1/keys", body, **headers) for _ in range(2))
    assert first.content == second.content
    assert b'"limit":123456789.123456789012,' in first.content
    ApiKey.objects.update(usage=Decimal("0.000000000001"))
    shown = program.get(f"/v1/keys/{first.json()['data']['hash']}").content
    assert b'"usage":0.000000000001,' in shown
    assert b'"limit_remaining":123456789.123456789011,' in shown


def test_an_api_key_manages_no_keys(world: World) -> None:
    caller = Caller(make_key(world.olivia, world.project).token)
    assert caller.get("/v1/keys").status_code == 401
    assert caller.post("/v1/keys", {"name": "more"}).status_code == 401
    assert ApiKey.objects.count() == 1


def test_a_management_key_asks_about_itself_and_the_credits(world: World) -> None:
    expires = timezone.now() + timedelta(days=1)
    made = make_management_key(world.olivia, world.acme, "read", "billing")
    type(made.key).objects.filter(pk=made.key.pk).update(expires_at=expires)
    body = Caller(made.token).get("/v1/key").json()
    conforms("/v1/key", body)
    told = body["data"]
    names = ("is_management_key", "is_provisioning_key", "limit", "usage", "usage_daily", "organization_id")
    assert [told[name] for name in names] == [True, True, None, 0, 0, str(world.acme.id)]
    assert (told["label"], told["expires_at"]) == (f"gw_mgmt_…{made.token[-4:]}", expires.isoformat())
    credits = Caller(made.token).get("/v1/credits")
    conforms("/v1/credits", credits.json())
    # An amount of 0 in a column of twelve decimals is no `0E-12`.
    assert credits.content == b'{"data":{"total_credits":0,"total_usage":0}}'


def test_a_management_key_needs_the_scopes_of_these_questions(world: World) -> None:
    lacking = Caller(make_management_key(world.olivia, world.acme, "keys").token)
    for path, scope in (("/v1/key", "read"), ("/v1/credits", "billing"), ("/v1/keys", "read")):
        answer = lacking.get(path)
        assert answer.status_code == 403
        assert f"the scope `{scope}`" in answer.json()["message"]
    assert Caller("gw_mgmt_" + "0" * 40).get("/v1/key").status_code == 401
    assert Caller("gw_mgmt_" + "0" * 40).get("/v1/credits").status_code == 401

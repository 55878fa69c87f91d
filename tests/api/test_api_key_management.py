"""API keys: switching them off and on, describing, limiting and deleting them (section 4.1)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.test import TestCase

from apps.keys.models import ApiKey
from apps.organizations.models import User
from tests.support.cast import World, make_key, signed_in
from tests.support.upstream import Caller as ModelCaller
from tests.support.upstream import nothing_happened, settle_all


@pytest.fixture
def key(world: World) -> ApiKey:
    """A key of Dana's that has spent a dollar."""
    key = make_key(world.dana, world.project, "Dana's").key
    ApiKey.objects.filter(pk=key.pk).update(usage=1)
    return key


def change(user: User, key: ApiKey, **changes: Any) -> Any:
    """Ask for changes of a key; return the response."""
    return signed_in(user).send("PATCH", f"/keys/api/{key.id}", changes)


class TestTheStatus:
    def test_the_message_names_the_new_one_and_the_key_is_masked(self, world: World, key: ApiKey) -> None:
        for status in ("inactive", "active"):
            response = change(world.dana, key, status=status)
            key.refresh_from_db()
            assert response.status_code == 200
            assert response.json() == {
                "message": f"API key status updated to {status}",
                "apiKey": {
                    "id": str(key.id),
                    "maskedToken": f"gw_dev_...{key.last_four}",
                    "description": "Dana's",
                    "status": status,
                    "usageLimit": None,
                    "usage": "1",
                    "periodLimit": None,
                    "requestsPerMinute": None,
                    "allowedOrigins": [],
                    "expiresAt": None,
                    "projectId": str(world.project.id),
                    "teamId": None,
                    "createdBy": str(world.dana.id),
                    "createdAt": key.created_at.isoformat().replace("+00:00", "Z"),
                    "updatedAt": key.updated_at.isoformat().replace("+00:00", "Z"),
                    "creator": {"id": str(world.dana.id), "name": "Dana", "email": "dana@example.com"},
                    "iamRules": [],
                },
            }
            assert key.status == status

    def test_the_description_can_be_changed_too(self, world: World, key: ApiKey) -> None:
        answer = change(world.adam, key, description="for the site").json()
        assert (answer["message"], answer["apiKey"]["description"]) == ("API key updated", "for the site")
        answer = change(world.adam, key, description="for nothing", status="inactive").json()
        assert answer["message"] == "API key status updated to inactive"
        key.refresh_from_db()
        assert (key.description, key.status) == ("for nothing", "inactive")

    @pytest.mark.parametrize(
        ("changes", "path", "message"),
        [
            ({}, "status", "Required"),
            ({"usageLimit": "5"}, "status", "Required"),
            ({"status": "deleted"}, "status", "Must be one of: active, inactive"),
            ({"status": None}, "status", "Must not be null"),
            ({"description": ""}, "description", "Must not be blank"),
            ({"status": "inactive", "description": "x" * 256}, "description", "255"),
        ],
    )
    def test_a_bad_field_is_named(
        self, world: World, key: ApiKey, changes: dict[str, Any], path: str, message: str
    ) -> None:
        before = ApiKey.objects.values().get()
        response = change(world.dana, key, **changes)
        assert response.status_code == 400
        [issue] = response.json()["issues"]
        assert issue["path"] == path
        assert message in issue["message"]
        assert ApiKey.objects.values().get() == before


class TestTheLimit:
    @pytest.mark.parametrize("limit", ["0", "12.5", "0.000000000001", None])
    def test_it_is_set_and_lifted(self, world: World, key: ApiKey, limit: str | None) -> None:
        response = signed_in(world.dana).send("PATCH", f"/keys/api/limit/{key.id}", {"usageLimit": limit})
        answer = response.json()
        assert (answer["message"], answer["apiKey"]["usageLimit"]) == ("API key usage limit updated", limit)
        assert answer["apiKey"]["maskedToken"] == key.masked_token
        key.refresh_from_db()
        assert (key.usage_limit, key.usage) == (None if limit is None else Decimal(limit), Decimal(1))

    @pytest.mark.parametrize("body", [{}, {"usageLimit": -1}, {"usageLimit": "-1"}, {"usageLimit": "much"}])
    def test_it_is_required_and_an_amount(self, world: World, key: ApiKey, body: dict[str, Any]) -> None:
        response = signed_in(world.dana).send("PATCH", f"/keys/api/limit/{key.id}", body)
        assert response.status_code == 400
        assert response.json()["issues"][0]["path"] == "usageLimit"
        key.refresh_from_db()
        assert key.usage_limit is None


class TestDeleting:
    def test_it_is_soft_and_final(self, world: World, key: ApiKey) -> None:
        caller, path = signed_in(world.dana), f"/keys/api/{key.id}"
        response = caller.send("DELETE", path, {})
        assert (response.status_code, response.json()) == (200, {"message": "API key deleted"})
        assert ApiKey.objects.get().status == "deleted"
        for method, where in [("PATCH", path), ("DELETE", path), ("GET", f"{path}/iam")]:
            answer = caller.send(method, where, {"status": "active"})
            assert (answer.status_code, answer.json()) == (404, {"message": "API key not found"})
        assert ApiKey.objects.get().status == "deleted"
        assert caller.get("/keys/api").json()["apiKeys"] == []

    def test_a_developer_deletes_only_their_own(self, world: World) -> None:
        other = make_key(world.adam, world.project).key
        response = signed_in(world.dana).send("DELETE", f"/keys/api/{other.id}", {})
        assert (response.status_code, response.json()) == (
            403,
            {"message": "Developers may manage only the API keys they created"},
        )
        other.refresh_from_db()
        assert other.status == "active"


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PATCH", "/keys/api/{id}", {"status": "inactive"}, 401),
        ("DELETE", "/keys/api/{id}", {}, 401),
        ("PATCH", "/keys/api/limit/{id}", {"usageLimit": "0"}, 402),
        ("POST", "/keys/api/{id}/iam", {"ruleType": "deny_providers", "ruleValue": {"providers": ["sandbox"]}}, 403),
    ],
)
def test_a_warm_worker_heeds_it_with_the_next_request(
    caller: ModelCaller, method: str, path: str, body: dict[str, Any], status: int
) -> None:
    assert caller.chat().status_code == 200
    settle_all()
    owner = User.objects.get(email="olivia@example.com")
    with TestCase.captureOnCommitCallbacks(execute=True):
        assert signed_in(owner).send(method, path.format(id=caller.key.id), body).status_code == 200
    assert caller.chat().status_code == status
    assert nothing_happened(caller)

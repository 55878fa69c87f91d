"""How long a key works and what it may spend in a period: created, changed, listed, refused, kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from apps.keys.models import ApiKey
from tests.support.cast import World, make_key, signed_in


def create(world: World, **fields: Any) -> Any:
    """Ask for a key as Dana."""
    body = {"description": "mine", "projectId": str(world.project.id), **fields}
    return signed_in(world.dana).post("/keys/api", body)


class TestThePeriodLimit:
    @pytest.mark.parametrize("period", ["hour", "day", "week", "month"])
    def test_is_created_shown_and_listed(self, world: World, period: str) -> None:
        limit = {"amount": "2.50", "period": period}
        created = create(world, periodLimit=limit).json()["apiKey"]
        assert created["periodLimit"] == {"amount": "2.5", "period": period}
        row = ApiKey.objects.get()
        assert (row.period, row.period_limit) == (period, Decimal("2.5"))
        [listed] = signed_in(world.dana).get("/keys/api").json()["apiKeys"]
        assert listed["periodLimit"] == {"amount": "2.5", "period": period}

    def test_is_none_unless_said(self, world: World) -> None:
        assert create(world).json()["apiKey"]["periodLimit"] is None
        row = ApiKey.objects.get()
        assert (row.period, row.period_limit) == ("", None)

    def test_is_changed_and_lifted(self, world: World) -> None:
        key = make_key(world.dana, world.project).key
        dana = signed_in(world.dana)
        changed = dana.send("PATCH", f"/keys/api/{key.id}", {"periodLimit": {"amount": "1", "period": "day"}})
        assert (changed.status_code, changed.json()["message"]) == (200, "API key updated")
        assert changed.json()["apiKey"]["periodLimit"] == {"amount": "1", "period": "day"}
        lifted = dana.send("PATCH", f"/keys/api/{key.id}", {"periodLimit": None})
        assert lifted.json()["apiKey"]["periodLimit"] is None
        key.refresh_from_db()
        assert (key.period, key.period_limit) == ("", None)

    @pytest.mark.parametrize(
        ("limit", "path"),
        [
            ({"amount": "1"}, "periodLimit.period"),
            ({"period": "day"}, "periodLimit.amount"),
            ({"amount": 1, "period": "day"}, "periodLimit.amount"),
            ({"amount": "-1", "period": "day"}, "periodLimit.amount"),
            ({"amount": "1", "period": "year"}, "periodLimit.period"),
            ({"amount": "1", "period": ["day"]}, "periodLimit.period"),
            ("1 a day", "periodLimit"),
        ],
    )
    def test_that_makes_no_sense_is_refused_by_name(self, world: World, limit: Any, path: str) -> None:
        key = make_key(world.dana, world.project).key
        before = ApiKey.objects.values().get()
        for response in (
            create(world, periodLimit=limit),
            signed_in(world.dana).send("PATCH", f"/keys/api/{key.id}", {"periodLimit": limit}),
        ):
            assert response.status_code == 400
            assert path in [issue["path"] for issue in response.json()["issues"]]
        assert ApiKey.objects.values().get() == before


class TestTheExpiry:
    def test_is_created_shown_listed_and_lifted(self, world: World) -> None:
        created = create(world, expiresAt="2099-12-31T12:00:00+02:00").json()["apiKey"]
        assert created["expiresAt"] == "2099-12-31T10:00:00Z"
        dana = signed_in(world.dana)
        assert dana.get("/keys/api").json()["apiKeys"][0]["expiresAt"] == "2099-12-31T10:00:00Z"
        lifted = dana.send("PATCH", f"/keys/api/{created['id']}", {"expiresAt": None})
        assert lifted.json()["apiKey"]["expiresAt"] is None
        assert ApiKey.objects.get().expires_at is None

    def test_of_a_date_is_its_end(self, world: World) -> None:
        assert create(world, expiresAt="2099-12-31").json()["apiKey"]["expiresAt"] == "2099-12-31T23:59:59.999999Z"

    @pytest.mark.parametrize("moment", ["2020-01-01", "yesterday", "", 4102444800, True, "0001-01-01T00:00:00+14:00"])
    def test_that_is_past_or_none_is_refused(self, world: World, moment: Any) -> None:
        key = make_key(world.dana, world.project).key
        for response in (
            create(world, expiresAt=moment),
            signed_in(world.dana).send("PATCH", f"/keys/api/{key.id}", {"expiresAt": moment}),
        ):
            assert (response.status_code, response.json()["issues"][0]["path"]) == (400, "expiresAt")
        assert ApiKey.objects.count() == 1
        key.refresh_from_db()
        assert key.expires_at is None

    def test_ends_the_key(self, world: World) -> None:
        made = make_key(world.dana, world.project)
        headers = {"Authorization": f"Bearer {made.token}"}
        caller = signed_in(world.dana).client
        ApiKey.objects.update(expires_at=datetime.now(UTC) + timedelta(minutes=1))
        assert caller.get("/logs", headers=headers).status_code == 200
        ApiKey.objects.update(expires_at=datetime.now(UTC) - timedelta(seconds=1))
        assert caller.get("/logs", headers=headers).status_code == 401


def test_nothing_else_of_the_key_changes_with_its_limits(world: World) -> None:
    key = make_key(world.dana, world.project, usage_limit=Decimal(3)).key
    ApiKey.objects.update(usage=Decimal("1.5"))
    body = {"expiresAt": "2099-01-01T00:00:00Z", "periodLimit": {"amount": "1", "period": "week"}}
    shown = signed_in(world.dana).send("PATCH", f"/keys/api/{key.id}", body).json()["apiKey"]
    assert (shown["usageLimit"], shown["usage"], shown["status"], shown["description"]) == (
        "3",
        "1.5",
        "active",
        "a key",
    )

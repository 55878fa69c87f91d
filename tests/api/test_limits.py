"""Limits of management: the last accepted value, and the first refused one (section 8)."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings

from apps.organizations.models import Organization
from apps.organizations.plans import limits_of
from tests.support.cast import World, signed_in


@pytest.mark.parametrize(
    ("plan", "keys", "projects", "log_days"), [("free", 5, 10, 3), ("pro", 20, 10, 90), ("enterprise", None, None, 365)]
)
def test_plans(plan: str, keys: int | None, projects: int | None, log_days: int) -> None:
    limits = limits_of(plan)
    assert (limits.api_keys_per_project, limits.projects, limits.log_days) == (keys, projects, log_days)
    assert limits.activity_days == 365


def test_enterprise_extras_are_guardrails_and_audit_logs_and_pro_manages_provider_keys() -> None:
    extras = {
        plan: (limits.guardrails, limits.audit_logs, limits.provider_keys)
        for plan in ("free", "pro", "enterprise")
        for limits in [limits_of(plan)]
    }
    assert extras == {"free": (False, False, False), "pro": (False, False, True), "enterprise": (True, True, True)}


def test_a_user_has_three_organizations() -> None:
    assert settings.ORGANIZATIONS_PER_USER == 3


@pytest.mark.parametrize(
    ("field", "taken", "refused"),
    [
        ("name", "x" * 255, "x" * 256),
        ("name", "x", ""),
        ("autoTopUpThreshold", 5, 4.99),
        ("autoTopUpThreshold", "5", "4.999999999999"),
        ("autoTopUpAmount", 10, 9.99),
        ("autoTopUpAmount", "10", "9.999999999999"),
        ("autoTopUpAmount", 999_999_999_999, 1e12),
        ("autoTopUpAmount", 10.123456789012345678, 1e308),
        ("autoTopUpEnabled", True, "true"),
        ("autoTopUpEnabled", False, 0),
        ("autoTopUpEnabled", True, 1.0),
        ("retentionLevel", "retain", "everything"),
        ("retentionLevel", "none", None),
        ("billingEmail", "a@example.com", "nobody"),
        ("billingEmail", None, 5),
        ("billingCompany", None, ["Acme"]),
        ("billingAddress", "", "a\0b"),
    ],
)
def test_of_an_organization(world: World, field: str, taken: Any, refused: Any) -> None:
    olivia, path = signed_in(world.olivia), f"/organization/{world.acme.id}"
    assert olivia.send("PATCH", path, {field: taken}).status_code == 200
    before = Organization.objects.filter(pk=world.acme.pk).values().get()
    response = olivia.send("PATCH", path, {field: refused})
    assert (response.status_code, [issue["path"] for issue in response.json()["issues"]]) == (400, [field])
    assert Organization.objects.filter(pk=world.acme.pk).values().get() == before


@pytest.mark.parametrize(
    ("field", "taken", "refused"),
    [
        ("cacheDurationSeconds", 10, 9),
        ("cacheDurationSeconds", 31_536_000, 31_536_001),
        ("cacheDurationSeconds", 60.0, 60.5),
        ("cacheDurationSeconds", 60, "60"),
        ("cacheDurationSeconds", 60, True),
        ("cacheDurationSeconds", 60, 10**400),
        ("cachingEnabled", True, "yes"),
        ("mode", "api-keys", "api_keys"),
        ("mode", "hybrid", ["hybrid"]),
        ("status", "archived", "deleted"),
    ],
)
def test_of_a_project(world: World, field: str, taken: Any, refused: Any) -> None:
    olivia, path = signed_in(world.olivia), f"/projects/{world.project.id}"
    assert olivia.send("PATCH", path, {field: taken}).status_code == 200
    before = olivia.get(path).json()
    response = olivia.send("PATCH", path, {field: refused})
    assert response.status_code == 400
    assert olivia.get(path).json() == before


@pytest.mark.parametrize("path", ["/logs", "/organization/{}/transactions"])
@pytest.mark.parametrize(("limit", "status"), [("1", 200), ("100", 200), ("0", 400), ("101", 400), ("1e1", 400)])
def test_of_a_page(world: World, path: str, limit: str, status: int) -> None:
    response = signed_in(world.olivia).get(f"{path.format(world.acme.id)}?limit={limit}")
    assert response.status_code == status
    if status == 200:
        assert response.json()["pagination"] == {"nextCursor": None, "hasMore": False, "limit": int(limit)}


@pytest.mark.parametrize("path", ["/logs", "/organization/{}/transactions"])
def test_a_page_has_fifty_unless_said(world: World, path: str) -> None:
    body = signed_in(world.olivia).get(path.format(world.acme.id)).json()
    assert body["pagination"] == {"nextCursor": None, "hasMore": False, "limit": 50}

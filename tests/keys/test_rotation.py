"""Rotation: a new key replaces another, with its limits and rules; the other ends now or later."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from django.utils import timezone

from apps.kernel.errors import InvalidRequest
from apps.keys.actions import open_playground_key, rotate_api_key
from apps.keys.models import ApiKey
from apps.keys.secrets import digest_of
from apps.organizations.models import AuditEntry
from tests.support.cast import World, make_key, signed_in


@pytest.fixture
def key(world: World) -> ApiKey:
    made = make_key(world.dana, world.project, "bot", Decimal(10)).key
    ApiKey.objects.filter(pk=made.pk).update(
        usage=Decimal("4.5"), period="day", period_limit=2, requests_per_minute=7, allowed_origins=["https://a.example"]
    )
    made.iam_rules.create(rule_type="deny_models", rule_value={"models": ["gpt-5"]}, status="inactive")
    return made


def test_the_new_key_has_limits_rules_and_what_is_left(world: World, key: ApiKey) -> None:
    answer = signed_in(world.dana).post(f"/keys/api/{key.id}/rotate")
    assert answer.status_code == 200
    shown = answer.json()["apiKey"]
    new = ApiKey.objects.get(pk=shown["id"])
    assert bytes(new.digest) == digest_of(shown["token"])
    assert (new.description, new.usage_limit, new.usage) == ("bot", Decimal("5.5"), 0)
    assert (new.period, new.period_limit, new.requests_per_minute) == ("day", 2, 7)
    assert new.allowed_origins == ["https://a.example"]
    assert list(new.iam_rules.values_list("rule_type", "rule_value", "status")) == [
        ("deny_models", {"models": ["gpt-5"]}, "inactive")
    ]
    key.refresh_from_db()
    assert key.status == "deleted"
    actions = AuditEntry.objects.filter(organization_id=world.acme.id, resource_id=str(key.id)).order_by("id")
    assert [one.action for one in actions][-2:] == ["api_key.delete", "api_key.replace"]


def test_for_some_hours_both_work(world: World, key: ApiKey) -> None:
    before = timezone.now()
    answer = signed_in(world.dana).post(f"/keys/api/{key.id}/rotate", {"overlapHours": 24})
    assert answer.status_code == 200
    key.refresh_from_db()
    assert key.status == "active"
    assert key.expires_at is not None
    assert before + timedelta(hours=24) <= key.expires_at <= timezone.now() + timedelta(hours=24)
    assert ApiKey.objects.get(pk=answer.json()["apiKey"]["id"]).expires_at is None


def test_an_end_that_comes_sooner_stays(world: World, key: ApiKey) -> None:
    ends = timezone.now() + timedelta(hours=1)
    ApiKey.objects.filter(pk=key.pk).update(expires_at=ends)
    answer = signed_in(world.dana).post(f"/keys/api/{key.id}/rotate", {"overlapHours": 24})
    key.refresh_from_db()
    assert key.expires_at == ends
    assert ApiKey.objects.get(pk=answer.json()["apiKey"]["id"]).expires_at == ends


def test_a_refusal_ends_nothing(world: World, key: ApiKey) -> None:
    path = f"/keys/api/{key.id}/rotate"
    assert signed_in(world.sam).post(path).status_code == 403
    assert signed_in(world.dana).post(path, {"overlapHours": 169}).status_code == 400
    ApiKey.objects.filter(pk=key.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert signed_in(world.dana).post(path).json()["message"].startswith("This key has expired")
    key.refresh_from_db()
    assert (key.status, ApiKey.objects.count()) == ("active", 1)


def test_at_the_plans_limit_there_is_room_for_a_key_in_the_place_of_another(world: World, key: ApiKey) -> None:
    for _ in range(4):
        make_key(world.dana, world.project)
    assert signed_in(world.dana).post(f"/keys/api/{key.id}/rotate", {"overlapHours": 1}).status_code == 400
    key.refresh_from_db()
    assert (key.status, key.expires_at) == ("active", None)
    assert signed_in(world.dana).post(f"/keys/api/{key.id}/rotate").status_code == 200


def test_a_playgrounds_key_comes_by_no_token(world: World) -> None:
    key = open_playground_key(user=world.dana, project_id=world.project.id)
    digest = bytes(key.digest)
    answer = signed_in(world.dana).post(f"/keys/api/{key.id}/rotate")
    assert (answer.status_code, answer.json()["message"]) == (400, "A playground's API key has no token to replace")
    with pytest.raises(InvalidRequest, match="has no token to replace"):
        rotate_api_key(key=key)
    key.refresh_from_db()
    assert (bytes(key.digest), key.status, ApiKey.objects.count()) == (digest, "active", 1)

"""Violations are kept as long as the plan keeps logs, and no longer."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.guardrails import stored_violations, tasks
from apps.guardrails.models import Violation
from apps.kernel.ids import new_id
from apps.organizations.models import Organization
from tests.support.upstream import Caller


def found_before(organization: Organization, days: float) -> Violation:
    moment = timezone.now() - timedelta(days=days)
    return Violation.objects.create(organization_id=organization.id, log_id=new_id(), created_at=moment)


def test_violations_expire_with_their_plan(caller: Caller) -> None:
    enterprise = Organization.objects.get(pk=caller.organization_id)
    fallen = Organization.objects.create(name="Fallen", plan="free")
    kept = [found_before(enterprise, 364), found_before(enterprise, 0), found_before(fallen, 2)]
    for organization, days in ((enterprise, 366), (enterprise, 1000), (fallen, 4)):
        found_before(organization, days)
    tasks.expire()
    assert set(Violation.objects.values_list("id", flat=True)) == {row.id for row in kept}


def test_many_are_removed_in_batches(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_violations, "BATCH", 2)
    organization = Organization.objects.get(pk=caller.organization_id)
    for _ in range(5):
        found_before(organization, 400)
    assert stored_violations.expire(timezone.now()) == 5
    assert stored_violations.expire(timezone.now()) == 0

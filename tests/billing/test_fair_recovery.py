"""Payments that are looked after: a crowd of one organization's keeps another's waiting for one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone

from apps.billing import tasks, topup
from apps.billing.models import Transaction
from tests.support.cast import World
from tests.support.stripe_stub import StripeStub


def test_a_crowd_of_payments_keeps_anothers_waiting_for_one(
    world: World, stripe: StripeStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for organization in [world.acme] * 20 + [world.elsewhere]:
        Transaction.objects.create(
            organization=organization,
            type=Transaction.Type.CREDIT_TOPUP,
            amount=5,
            credit_amount=5,
            processor_payment_method_id="pm_1",
        )
    Transaction.objects.update(created_at=timezone.now() - timedelta(hours=1))
    seen: list[UUID] = []

    def recover(row: Any) -> None:
        seen.append(row.organization_id)

    monkeypatch.setattr(topup, "recover", recover)
    tasks.recover_payments()
    assert len(seen) == 21
    assert world.elsewhere.id in seen[:2]

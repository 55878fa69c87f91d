"""Erasure of the guardrails of a deleted organization."""

from __future__ import annotations

from uuid import UUID

from apps.guardrails.models import CustomRule, GuardrailConfig, Violation
from apps.kernel.postgres.deletion import delete_in_pieces


def erase(organization_id: UUID) -> None:
    """Remove its configuration, its rules, and what they found."""
    delete_in_pieces(Violation.objects.filter(organization_id=organization_id))
    CustomRule.objects.filter(organization=organization_id).delete()
    GuardrailConfig.objects.filter(organization=organization_id).delete()

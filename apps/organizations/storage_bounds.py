"""Bounds of what an organization may have stored and waiting: by its plan, and by whether it has credits."""

from __future__ import annotations

from uuid import UUID

from django.conf import settings

from apps.organizations.models import Organization, Plan
from apps.organizations.plans import limits_of


def max_file_bytes(organization: Organization) -> int:
    """Return how many bytes the organization's files may have together."""
    stated: int | None = settings.FILE_BYTES[organization.plan]
    of_plan = limits_of(organization.plan).file_bytes if stated is None else stated
    return min(of_plan, _without_credits()) if pays_nothing(organization) else of_plan


def max_response_bytes(plan: str, organization_id: UUID) -> int:
    """Return how many bytes of responses and conversations an organization may have stored.

    Asks the database on the free plan alone. Raises DatabaseError.
    """
    most: int = settings.STORED_BYTES_PER_ORGANIZATION
    if plan != Plan.FREE or Organization.objects.filter(pk=organization_id, credits__gt=0).exists():
        return most
    return min(most, _without_credits())


def max_batches(organization: Organization) -> int:
    """Return how many batches the organization may have in progress."""
    stated: int | None = settings.BATCHES_IN_PROGRESS[organization.plan]
    return limits_of(organization.plan).batches if stated is None else stated


def max_batch_lines(organization: Organization) -> int:
    """Return how many lines the organization's batches in progress may have together."""
    stated: int | None = settings.BATCH_LINES_IN_PROGRESS[organization.plan]
    return limits_of(organization.plan).batch_lines if stated is None else stated


def pays_nothing(organization: Organization) -> bool:
    """Return whether the organization is on the free plan and has no credits."""
    return organization.plan == Plan.FREE and organization.credits <= 0


def _without_credits() -> int:
    most: int = settings.STORED_BYTES_WITHOUT_CREDITS
    return most

"""The end of the waiting period of requested deletions of organizations."""

from __future__ import annotations

from uuid import UUID

from django.utils import timezone

from apps.organizations.deletion import complete_due
from apps.organizations.models import OrganizationDeletion


def end_waiting_period() -> list[UUID]:
    """Let the waiting period of every requested deletion end now; return the ids of the deleted organizations."""
    OrganizationDeletion.objects.filter(cancelled_at=None, completed_at=None).update(due_at=timezone.now())
    return complete_due()

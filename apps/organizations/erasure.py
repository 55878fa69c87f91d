"""What is left of an organization after its deletion: its name is gone, and so is everything that was its own.

Each app that keeps rows of organizations has a module `erasure` with `erase(organization_id)`; they are found by
looking. An organization without a name has been erased, so a run that is cut short is repeated by the next. Rows that
say nothing stay where a later request or the books must still find them. Must never know another app's tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Protocol, cast
from uuid import UUID

from django.db import transaction

from apps.organizations.app_hooks import find_hook_modules
from apps.organizations.models import AuditEntry, Membership, Organization, Project


class _Eraser(Protocol):
    """A module that forgets what its app knows of an organization; doing so twice changes nothing."""

    def erase(self, organization_id: UUID) -> None:
        """Remove or blank the rows."""


def erase_deleted() -> list[UUID]:
    """Erase every deleted organization that is not erased yet; return their ids."""
    waiting = Organization.objects.filter(status=Organization.Status.DELETED).exclude(name="")
    ids = list(waiting.order_by("id").values_list("id", flat=True))
    for organization_id in ids:
        _wait_for_writers(organization_id)
        for eraser in _erasers():
            eraser.erase(organization_id)
        _erase_own(organization_id)
    return ids


@transaction.atomic
def _wait_for_writers(organization_id: UUID) -> None:
    """Wait for those who hold the organization's row because it was not deleted yet; later ones see that it is."""
    Organization.objects.select_for_update().get(pk=organization_id)


def _erasers() -> Iterator[_Eraser]:
    for name in find_hook_modules("erasure", __name__):
        yield cast(_Eraser, import_module(name))


@transaction.atomic
def _erase_own(organization_id: UUID) -> None:
    """Forget members, names and what was done. Projects stay: whoever still asks is told that they are gone."""
    Membership.objects.filter(organization=organization_id).delete()
    AuditEntry.objects.filter(organization_id=organization_id).delete()
    Project.objects.filter(organization=organization_id).update(name="")
    Organization.objects.filter(pk=organization_id).update(
        name="",
        billing_email=None,
        billing_company=None,
        billing_address=None,
        billing_tax_id=None,
        billing_notes=None,
    )

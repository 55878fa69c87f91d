"""Erasure of deleted organizations: removes names and personal data.

Each app with rows of organizations has a module `erasure` with `erase(organization_id)`, discovered at import. An
organization without a name has been erased, so an interrupted run is completed by the next. Rows without personal data
stay if later requests or the ledger need them.
"""
# alone: the hook `erasure` of all apps; tasks.py only starts it

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Protocol, cast
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from apps.kernel.postgres.deletion import delete_in_pieces
from apps.organizations.app_hooks import find_hook_modules
from apps.organizations.models import (
    AuditEntry,
    ManagementKey,
    Membership,
    Organization,
    Project,
    ServiceAccount,
    Team,
    User,
)


class _Eraser(Protocol):
    """A module that erases its app's rows of an organization; repeating it changes nothing."""

    def erase(self, organization_id: UUID) -> None:
        """Delete or blank the rows."""


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
    """Wait for transactions that locked the organization before it was deleted; later ones see that it is deleted."""
    Organization.objects.select_for_update().get(pk=organization_id)


def _erasers() -> Iterator[_Eraser]:
    for name in find_hook_modules("erasure", __name__):
        yield cast(_Eraser, import_module(name))


@transaction.atomic
def _erase_own(organization_id: UUID) -> None:
    """Delete members, names and history. Projects stay, so that late requests get 410."""
    Membership.objects.filter(organization=organization_id).delete()
    for account in User.objects.filter(management_key__organization=organization_id):
        User.objects.filter(pk=account.pk).update(name="", email=f"{account.pk.hex}@{ManagementKey.ACCOUNT_DOMAIN}")
    ManagementKey.objects.filter(organization=organization_id).update(name="", revoked_at=timezone.now())
    for account in User.objects.filter(service_account__organization=organization_id):
        # API keys refer to it, and stay.
        User.objects.filter(pk=account.pk).update(name="", email=f"{account.pk.hex}@{ServiceAccount.ACCOUNT_DOMAIN}")
    ServiceAccount.objects.filter(organization=organization_id).delete()
    Team.objects.filter(organization=organization_id).delete()
    delete_in_pieces(AuditEntry.objects.filter(organization_id=organization_id))
    Project.objects.filter(organization=organization_id).update(name="")
    Organization.objects.filter(pk=organization_id).update(
        name="",
        billing_email=None,
        billing_company=None,
        billing_address=None,
        billing_tax_id=None,
        billing_notes=None,
    )

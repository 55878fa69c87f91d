"""Deletion of organizations: requested, cancelled by an owner or operator, completed after a wait; erasure.

Each request is an entry of the operators' journal (`OrganizationDeletion`). It outlives the organization and names the
requester, the reason, and the deleted rows. Owners receive an e-mail about each step; the entry keeps their addresses
until it is sent, since members are erased with the organization.

Erasure removes the names and personal data of deleted organizations. Each app with rows of organizations has a hook
`erase` (`apps.organizations.app_hooks`). An organization without a name has been erased, so an interrupted run is
completed by the next. Rows without personal data stay if later requests or the ledger need them.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from smtplib import SMTPException
from typing import Any, Final
from uuid import UUID

import structlog
from django.apps import apps
from django.conf import settings
from django.db import transaction
from django.db.models import Model, QuerySet
from django.utils import timezone
from django.utils.translation import gettext, gettext_noop

from apps.kernel.errors import InvalidRequest
from apps.kernel.postgres.rows import delete_in_pieces, lock_row
from apps.organizations import actions
from apps.organizations.access import NO_ORGANIZATION, by_language, owner_addresses, send_in_languages
from apps.organizations.accounts.account_emails import next_rows
from apps.organizations.app_hooks import find_hooks
from apps.organizations.journal import audit
from apps.organizations.models import (
    MAX_REASON,
    AuditEntry,
    ManagementKey,
    Membership,
    Organization,
    OrganizationDeletion,
    Project,
    ServiceAccount,
    Team,
    User,
)

log = structlog.get_logger(__name__)
# Time between the request and the deletion.
WAITING_PERIOD: Final = timedelta(days=7)
# How long addresses of an e-mail that cannot be sent are kept.
_ADDRESSES_LAST: Final = timedelta(days=30)
NOT_DELETING: Final = "The deletion of this organization was not requested, or was cancelled already"
_Notice = OrganizationDeletion.Notice
_Status = Organization.Status
# By kind: subject and text of the e-mail.
_EMAILS: Final[dict[str, tuple[str, str]]] = {
    _Notice.REQUESTED: (
        gettext_noop("{name} will be deleted on {date}"),
        gettext_noop("""Hello,

{actor} requested the deletion of the organization “{name}” at {place}.{reason}

Its API keys and management keys are refused since then. On {date} at {time} UTC the organization is deleted, with its
projects, keys, log and remaining credits. Until then an owner can cancel the deletion:

    {place}/app/o/{organization}/settings/delete
"""),
    ),
    _Notice.CANCELLED: (
        gettext_noop("{name} will not be deleted"),
        gettext_noop("""Hello,

{cancelled_by} cancelled the deletion of the organization “{name}” at {place}. Its keys work again.

Automatic top-up stays off, and a subscription stays cancelled: switch them on again under Billing, if you need them:

    {place}/app/o/{organization}/billing
"""),
    ),
    _Notice.COMPLETED: (
        gettext_noop("{name} was deleted"),
        gettext_noop("""Hello,

the organization “{name}” at {place} was deleted, as {actor} requested on {requested}. Its data is erased; records of
payments are kept for as long as the law requires.
"""),
    ),
}


@transaction.atomic
def request_deletion(*, organization: Organization, reason: str = "") -> Organization:
    """Refuse the organization's keys from now on, and delete it after the waiting period unless it is cancelled.

    Automatic top-up is switched off. Raises NotFound for a deleted organization, InvalidRequest (409) if it was
    requested already.
    """
    row = lock_row(organization, NO_ORGANIZATION)
    if row.status == _Status.DELETING:
        raise InvalidRequest(
            f"The deletion was already requested; it takes effect on {row.deletion_due_at:%Y-%m-%d %H:%M} UTC",
            status=409,
            code="already_deleting",
        )
    now = timezone.now()
    kind, user = audit.current_actor()
    OrganizationDeletion.objects.create(
        organization_id=row.id,
        organization_name=row.name,
        reason=reason.strip()[:MAX_REASON],
        actor_type=kind,
        actor_id=user.id if user else None,
        actor_email=user.email if user else None,
        previous_status=row.status,
        balance=row.credits,
        requested_at=now,
        due_at=now + WAITING_PERIOD,
        notice=_Notice.REQUESTED,
        recipients=sorted(owner_addresses(row.id)),
    )
    details = {"name": row.name, "reason": reason.strip()[:MAX_REASON], "dueAt": now + WAITING_PERIOD}
    audit.record("organization.request_deletion", organization_id=row.id, resource=row, details=details)
    _set(row, status=_Status.DELETING, deletion_due_at=now + WAITING_PERIOD, auto_top_up_enabled=False)
    return row


@transaction.atomic
def cancel_deletion(*, organization: Organization) -> Organization:
    """Give an organization back the status it had before its deletion was requested; its keys work again.

    Raises NotFound for a deleted organization, InvalidRequest (409) if no deletion is waiting.
    """
    row = lock_row(organization, NO_ORGANIZATION)
    entry = _open_entries().filter(organization_id=row.id).first()
    if row.status != _Status.DELETING or entry is None:
        raise InvalidRequest(NOT_DELETING, status=409, code="not_deleting")
    user = audit.acting_user()
    entry.cancelled_at, entry.cancelled_by = timezone.now(), user.email if user else None
    entry.notice, entry.recipients = _Notice.CANCELLED, sorted(owner_addresses(row.id))
    entry.save(update_fields=["cancelled_at", "cancelled_by", "notice", "recipients"])
    audit.record("organization.cancel_deletion", organization_id=row.id, resource=row, details={"name": row.name})
    _set(row, status=entry.previous_status, deletion_due_at=None)
    return row


def complete_due() -> list[UUID]:
    """Delete the organizations whose waiting period is over; return their ids."""
    due = _open_entries().filter(due_at__lte=timezone.now()).order_by("due_at", "id")
    return [entry.organization_id for entry in list(due) if _complete(entry)]


def _complete(entry: OrganizationDeletion) -> bool:
    """Delete the organization of an entry; return False if the deletion was cancelled meanwhile."""
    # Before the transaction: counting a long log must not lock the organization.
    counts = count_rows(entry.organization_id)
    with transaction.atomic():
        row = Organization.objects.select_for_update(no_key=True).get(pk=entry.organization_id)
        current = _open_entries().filter(pk=entry.pk).first()
        if current is None or row.status != _Status.DELETING:
            return False
        current.completed_at, current.row_counts = timezone.now(), counts
        current.organization_name, current.balance = row.name, row.credits
        current.notice, current.recipients = _Notice.COMPLETED, sorted(owner_addresses(row.id))
        current.save()
        actions.delete_organization(organization=row)
    return True


def count_rows(organization_id: UUID) -> dict[str, int]:
    """Return how many rows of each table belong to an organization, by label (`keys.apikey`), without empty tables."""
    counts = {}
    for model in apps.get_models():
        path = _path_of(model)
        if path is not None and (count := model._default_manager.filter(**{path: organization_id}).count()):
            counts[model._meta.label_lower] = count
    return dict(sorted(counts.items()))


def _path_of(model: type[Model]) -> str | None:
    """Return the lookup from a table to the id of its organization; None without one, and for the journal."""
    if model is OrganizationDeletion:
        return None
    columns = {field.attname for field in model._meta.concrete_fields}
    if "organization_id" in columns:
        return "organization_id"
    declared: Any = getattr(model, "organization_path", None)
    if declared and declared != "id":
        return str(declared).replace(".", "__")
    return "project__organization_id" if "project_id" in columns and _is_key(model, "project") else None


def _is_key(model: type[Model], name: str) -> bool:
    return bool(model._meta.get_field(name).is_relation)


def _open_entries() -> QuerySet[OrganizationDeletion]:
    return OrganizationDeletion.objects.filter(cancelled_at=None, completed_at=None)


def _set(row: Organization, **values: Any) -> None:
    """Save only these columns: the ledger changes balances concurrently."""
    for name, value in values.items():
        setattr(row, name, value)
    row.save(update_fields=[*values, "updated_at"])


def send_notices() -> int:
    """Send the waiting e-mails to owners; return how many. One that cannot be sent waits, at most 30 days.

    If the process dies after sending and before recording it, the e-mail is sent twice.
    """
    sent = 0
    for entry in next_rows("deletion", OrganizationDeletion.objects.exclude(notice="")):
        if _is_too_old(entry) or _send(entry):
            # Keep a newer notice that was set meanwhile.
            waiting = OrganizationDeletion.objects.filter(pk=entry.pk, notice=entry.notice)
            sent += waiting.update(notice="", recipients=[])
    return sent


def _is_too_old(entry: OrganizationDeletion) -> bool:
    return entry.due_at < timezone.now() - _ADDRESSES_LAST


def _send(entry: OrganizationDeletion) -> bool:
    def write() -> tuple[str, str]:
        subject, text = (gettext(words).format(**_words_of(entry)) for words in _EMAILS[entry.notice])
        return subject, text

    try:
        send_in_languages(by_language(entry.recipients), write)
    except (OSError, SMTPException) as error:
        log.warning("deletion.notice_not_sent", organization=str(entry.organization_id), error=type(error).__name__)
        return False
    return True


def _words_of(entry: OrganizationDeletion) -> dict[str, str]:
    is_operator = entry.actor_type == "admin"
    return {
        "name": " ".join(entry.organization_name.split())[:60],
        "actor": gettext("An operator") if is_operator else entry.actor_email or gettext("The gateway"),
        "cancelled_by": entry.cancelled_by or gettext("The gateway"),
        "reason": f" {gettext('The reason: {reason}.').format(reason=' '.join(entry.reason.split()))}"
        if entry.reason
        else "",
        "place": settings.PUBLIC_URL,
        "organization": str(entry.organization_id),
        "date": _day(entry.due_at),
        "time": f"{entry.due_at:%H:%M}",
        "requested": _day(entry.requested_at),
    }


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d}"


def erase_deleted() -> list[UUID]:
    """Erase every deleted organization that is not erased yet; return their ids."""
    waiting = Organization.objects.filter(status=Organization.Status.DELETED).exclude(name="")
    ids = list(waiting.order_by("id").values_list("id", flat=True))
    for organization_id in ids:
        _wait_for_writers(organization_id)
        for erase in find_hooks("erase"):
            erase(organization_id)
        _erase_own(organization_id)
    return ids


@transaction.atomic
def _wait_for_writers(organization_id: UUID) -> None:
    """Wait for transactions that locked the organization before it was deleted; later ones see that it is deleted."""
    Organization.objects.select_for_update().get(pk=organization_id)


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

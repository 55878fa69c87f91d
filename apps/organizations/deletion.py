"""Deletion of organizations: requested, cancelled by an owner or operator, or completed after a waiting period.

Each request is an entry of the operators' journal (`OrganizationDeletion`). It outlives the organization and names the
requester, the reason, and the deleted rows. Owners receive an e-mail about each step; the entry keeps their addresses
until it is sent, since members are erased with the organization.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from smtplib import SMTPException
from typing import Any, Final
from uuid import UUID

import structlog
from django.apps import apps
from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import Model, QuerySet
from django.utils import timezone

from apps.kernel.errors import InvalidRequest
from apps.kernel.postgres.row_lookup import lock_row
from apps.organizations import actions
from apps.organizations.access import NO_ORGANIZATION
from apps.organizations.accounts.account_emails import next_rows
from apps.organizations.journal import audit
from apps.organizations.models import MAX_REASON, Organization, OrganizationDeletion
from apps.organizations.organization_lookup import owner_addresses

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
        "{name} will be deleted on {date}",
        """Hello,

{actor} requested the deletion of the organization “{name}” at {place}.{reason}

Its API keys and management keys are refused since then. On {date} at {time} UTC the organization is deleted, with its
projects, keys, log and remaining credits. Until then an owner can cancel the deletion:

    {place}/app/o/{organization}/settings/delete
""",
    ),
    _Notice.CANCELLED: (
        "{name} will not be deleted",
        """Hello,

{cancelled_by} cancelled the deletion of the organization “{name}” at {place}. Its keys work again.

Automatic top-up stays off, and a subscription stays cancelled: switch them on again under Billing, if you need them:

    {place}/app/o/{organization}/billing
""",
    ),
    _Notice.COMPLETED: (
        "{name} was deleted",
        """Hello,

the organization “{name}” at {place} was deleted, as {actor} requested on {requested}. Its data is erased; records of
payments are kept for as long as the law requires.
""",
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
    subject, text = (words.format(**_words_of(entry)) for words in _EMAILS[entry.notice])
    if not entry.recipients:
        return True
    try:
        # A line break in a name must not add e-mail headers.
        EmailMessage(" ".join(subject.split()), text, bcc=entry.recipients).send()
    except (OSError, SMTPException) as error:
        log.warning("deletion.notice_not_sent", organization=str(entry.organization_id), error=type(error).__name__)
        return False
    return True


def _words_of(entry: OrganizationDeletion) -> dict[str, str]:
    is_operator = entry.actor_type == "admin"
    return {
        "name": " ".join(entry.organization_name.split())[:60],
        "actor": "An operator" if is_operator else entry.actor_email or "The gateway",
        "cancelled_by": entry.cancelled_by or "The gateway",
        "reason": f" The reason: {' '.join(entry.reason.split())}." if entry.reason else "",
        "place": settings.PUBLIC_URL,
        "organization": str(entry.organization_id),
        "date": _day(entry.due_at),
        "time": f"{entry.due_at:%H:%M}",
        "requested": _day(entry.requested_at),
    }


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d}"

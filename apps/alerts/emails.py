"""E-mails about alerts to owners and admins: one for each organization with all that waits for it.

A person in quiet hours is left out, and gets one e-mail with all of it when these end.

A message is recorded as sent after the mail server accepted it, so a crash in between sends it again after some
minutes; none is lost. Another process does not send it meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from smtplib import SMTPException
from typing import Final, NamedTuple
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from apps.alerts.messages import console_url, email_of, notice_of
from apps.alerts.metrics import EMAIL, count_messages
from apps.alerts.models import AlertDelivery, AlertReader
from apps.destinations.delivery import PATIENCE
from apps.kernel.postgres import database
from apps.organizations.access import by_language, people_of, send_in_languages
from apps.organizations.models import Membership, Organization, Role

log = structlog.get_logger(__name__)

# How long a process has to send what it took; failed e-mails are tried again after it.
LEASE: Final = timedelta(minutes=5)
# Alerts in one e-mail, and e-mails of one run.
MAX_ALERTS, MAX_EMAILS = 50, 500


def send_due(now: datetime) -> int:
    """Send waiting e-mails; return how many. Failed ones keep waiting."""
    sent = _send_digests(now)
    for organization_id in _organizations(now):
        deliveries = _take(organization_id, now)
        try:
            # Owners get some causes from elsewhere.
            for owners_told in (False, True):
                sent += _send([one for one in deliveries if one.alert.owners_told is owners_told], now)
        except SMTPException as error:
            _note_failure(organization_id, error)
        except OSError as error:
            # The mail server is away: the next run tries.
            _note_failure(organization_id, error)
            break
    return sent


class Recipients(NamedTuple):
    """The addresses of people who get an e-mail now, and the memberships of those whose quiet hours have to end."""

    addresses: list[str]
    held: list[UUID]


def find_recipients(organization: Organization, now: datetime, *, with_owners: bool = True) -> Recipients:
    """Return the owners and admins to send e-mails to."""
    people = _people(organization, with_owners=with_owners)
    held = [one.pk for one in people if _is_held(one, now)]
    return Recipients([one.user.email for one in people if one.pk not in held], held)


def _people(organization: Organization, *, with_owners: bool) -> list[Membership]:
    """Return owners and admins who may sign in and have not switched e-mails off, by address."""
    roles = [Role.OWNER, Role.ADMIN] if with_owners else [Role.ADMIN]
    people = people_of(organization).filter(role__in=roles, user__is_active=True)
    return list(
        people.exclude(alert_reader__by_email=False).select_related("user", "alert_reader").order_by("user__email")
    )


def _is_held(person: Membership, now: datetime) -> bool:
    """Return whether e-mails to a person wait: in quiet hours, and until those that waited are sent."""
    reader: AlertReader | None = getattr(person, "alert_reader", None)
    return reader is not None and (reader.held_since is not None or reader.is_quiet_at(now))


def _send_digests(now: datetime) -> int:
    """Send people whose quiet hours are over what waited for them; return how many e-mails."""
    sent = 0
    readers = AlertReader.objects.filter(held_since__isnull=False, next_digest_at__lte=now)
    for reader in readers.select_related("membership__user", "membership__organization").order_by("held_since"):
        if sent >= MAX_EMAILS or reader.is_quiet_at(now):
            continue
        due = AlertReader.objects.filter(pk=reader.pk, held_since=reader.held_since, next_digest_at__lte=now)
        if not due.update(next_digest_at=now + LEASE):
            continue
        covered = set(_held_back(reader).values_list("pk", flat=True))
        try:
            sent += _send_digest(reader, covered)
        except SMTPException as error:
            _note_failure(reader.membership.organization_id, error)
            if reader.held_since is None or reader.held_since > now - PATIENCE:
                continue
            # A mailbox that takes nothing is not tried for ever.
        except OSError as error:
            # The mail server is away: the next run tries.
            _note_failure(reader.membership.organization_id, error)
            break
        _end_waiting(reader, covered, now)
    return sent


def _held_back(reader: AlertReader) -> QuerySet[AlertDelivery]:
    """Return the messages that were sent to others while a person's e-mails waited."""
    rows = AlertDelivery.objects.filter(
        destination=None,
        status=AlertDelivery.Status.SENT,
        sent_at__gte=reader.held_since,
        alert__organization=reader.membership.organization_id,
    )
    return rows.exclude(alert__owners_told=True) if reader.membership.role == Role.OWNER else rows


@transaction.atomic
def _end_waiting(reader: AlertReader, covered: Collection[UUID], now: datetime) -> None:
    """Let a person's e-mails go again, unless messages that no digest covers were held back meanwhile: these wait for
    the next run.

    The lock waits for a run that holds messages back now (`_send`), so that none is missed.
    """
    current = AlertReader.objects.select_for_update().filter(pk=reader.pk).first()
    if current is None or current.held_since != reader.held_since:
        # Another run had the lease after this one, and has sent them.
        return
    later = _held_back(reader).exclude(pk__in=covered).order_by("sent_at")
    since = later.values_list("sent_at", flat=True).first()
    AlertReader.objects.filter(pk=reader.pk).update(held_since=since, next_digest_at=now)


def _send_digest(reader: AlertReader, covered: Collection[UUID]) -> int:
    """Send a person the newest of these messages, which waited; return 1, or 0 where there is nothing to send."""
    person, organization = reader.membership, reader.membership.organization
    is_known = any(one.pk == person.pk for one in _people(organization, with_owners=True))
    if not is_known or organization.status == Organization.Status.DELETED:
        return 0
    rows = AlertDelivery.objects.filter(pk__in=covered).select_related("alert__organization")
    deliveries = list(rows.order_by("-id")[:MAX_ALERTS])
    if not deliveries:
        return 0
    _email(
        organization, deliveries[::-1], f"<digest-{deliveries[0].id}-{person.pk}@model-gateway>", [person.user.email]
    )
    return 1


def _email(
    organization: Organization, deliveries: Sequence[AlertDelivery], message_id: str, addresses: list[str]
) -> None:
    """Send an e-mail about alerts of an organization in each language of its readers. Raises SMTPException, OSError."""
    notices = [notice_of(one) for one in deliveries]
    groups = by_language(addresses)

    def write() -> tuple[str, str]:
        read = [one.in_reader_language() for one in notices]
        return email_of(organization.name, read, console_url(organization.id, "alerts"))

    # Do not hold a pooled connection while the mail server is slow.
    database.release_connection()
    count_messages(EMAIL, "sent", send_in_languages(groups, write, {"Message-ID": message_id}))


def _note_failure(organization_id: UUID, error: Exception) -> None:
    count_messages(EMAIL, "failed")
    log.warning("alerts.not_emailed", organization=str(organization_id), error=type(error).__name__)


def _organizations(now: datetime) -> list[UUID]:
    """Return the organizations with waiting e-mails, those that wait longest first."""
    waiting = _waiting(now).order_by("id").values_list("alert__organization_id", flat=True)
    return list(dict.fromkeys(waiting[: MAX_EMAILS * MAX_ALERTS]))[:MAX_EMAILS]


def _waiting(now: datetime) -> QuerySet[AlertDelivery]:
    """Return the e-mails that are due, of organizations that are not deleted."""
    standing = Organization.objects.exclude(status=Organization.Status.DELETED)
    return AlertDelivery.objects.filter(
        destination=None,
        status=AlertDelivery.Status.WAITING,
        next_attempt_at__lte=now,
        alert__organization__in=standing,
    )


@transaction.atomic
def _take(organization_id: UUID, now: datetime) -> list[AlertDelivery]:
    """Return an organization's waiting messages, leased to this process."""
    rows = _waiting(now).filter(alert__organization=organization_id).select_related("alert__organization")
    taken = list(rows.select_for_update(skip_locked=True, of=("self",)).order_by("id")[:MAX_ALERTS])
    AlertDelivery.objects.filter(pk__in=[one.pk for one in taken]).update(next_attempt_at=now + LEASE)
    return taken


def _send(deliveries: Sequence[AlertDelivery], now: datetime) -> int:
    """Send messages of one organization as one e-mail, and record it; return how many e-mails."""
    if not deliveries:
        return 0
    organization = deliveries[0].alert.organization
    addresses, held = find_recipients(organization, now, with_owners=not deliveries[0].alert.owners_told)
    if addresses:
        _email(organization, deliveries, f"<alert-{deliveries[0].id}@model-gateway>", addresses)
    with transaction.atomic():
        # The locks make the end of a digest wait: it finds these messages (`_end_waiting`).
        readers = AlertReader.objects.select_for_update().filter(pk__in=held).order_by("pk")
        free = [one.pk for one in readers if one.held_since is None]
        AlertReader.objects.filter(pk__in=free).update(held_since=now)
        AlertDelivery.objects.filter(pk__in=[one.pk for one in deliveries]).update(
            status=AlertDelivery.Status.SENT, sent_at=timezone.now()
        )
    return bool(addresses)

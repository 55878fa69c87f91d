"""E-mails about alerts to owners and admins: one for each organization with all that waits for it.

A message is recorded as sent after the mail server accepted it, so a crash in between sends it again after some
minutes; none is lost. Another process does not send it meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from smtplib import SMTPException
from typing import Final
from uuid import UUID

import structlog
from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import QuerySet

from apps.alerts.messages import email_of
from apps.alerts.models import AlertDelivery
from apps.alerts.notices import console_url, notice_of
from apps.kernel.postgres import database
from apps.organizations.access import people_of
from apps.organizations.models import Organization, Role

log = structlog.get_logger(__name__)

# How long a process has to send what it took; failed e-mails are tried again after it.
LEASE: Final = timedelta(minutes=5)
# Alerts in one e-mail, and e-mails of one run.
MAX_ALERTS, MAX_EMAILS = 50, 500


def send_due(now: datetime) -> int:
    """Send waiting e-mails; return how many. Failed ones keep waiting."""
    sent = 0
    for organization_id in _organizations(now):
        deliveries = _take(organization_id, now)
        try:
            # Owners get some causes from elsewhere.
            for owners_told in (False, True):
                sent += _send([one for one in deliveries if one.alert.owners_told is owners_told], now)
        except SMTPException as error:
            log.warning("alerts.not_emailed", organization=str(organization_id), error=type(error).__name__)
        except OSError as error:
            # The mail server is away: the next run tries.
            log.warning("alerts.not_emailed", organization=str(organization_id), error=type(error).__name__)
            break
    return sent


def recipients(organization: Organization, *, with_owners: bool = True) -> list[str]:
    """Return the addresses of owners and admins who may sign in and have not switched e-mails off."""
    roles = [Role.OWNER, Role.ADMIN] if with_owners else [Role.ADMIN]
    people = people_of(organization).filter(role__in=roles, user__is_active=True)
    return sorted(people.exclude(alert_reader__by_email=False).values_list("user__email", flat=True))


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
    addresses = recipients(organization, with_owners=not deliveries[0].alert.owners_told)
    if addresses:
        notices = [notice_of(one) for one in deliveries]
        subject, text = email_of(organization.name, notices, console_url(organization.id, "alerts"))
        message_id = f"<alert-{notices[0].id}@model-gateway>"
        # Do not hold a pooled connection while the mail server is slow.
        database.release_connection()
        EmailMessage(subject, text, bcc=addresses, headers={"Message-ID": message_id}).send()
    AlertDelivery.objects.filter(pk__in=[one.pk for one in deliveries]).update(
        status=AlertDelivery.Status.SENT, sent_at=now
    )
    return bool(addresses)

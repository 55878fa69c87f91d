"""Celery tasks of organizations."""

from __future__ import annotations

import structlog
from celery import shared_task

from apps.organizations import deletion
from apps.organizations.accounts import account_emails
from apps.organizations.deletion import erase_deleted
from apps.organizations.journal import idempotency

log = structlog.get_logger(__name__)


@shared_task(name="organizations.erase_deleted", time_limit=1800)
def erase() -> None:
    """Delete organizations whose waiting period is over, and erase the data of deleted ones.

    An interrupted run is completed by the next.
    """
    if completed := deletion.complete_due():
        log.info("organizations.deleted", organizations=[str(one) for one in completed])
    erased = erase_deleted()
    log.info("organizations.erased", organizations=[str(one) for one in erased])


@shared_task(name="organizations.sweep_idempotent_answers", time_limit=600)
def sweep_idempotent_answers() -> None:
    """Delete expired idempotent answers. An interrupted run is completed by the next."""
    log.info("idempotent_answers.swept", rows=idempotency.sweep())


@shared_task(name="organizations.send_messages", time_limit=600)
def send_messages() -> None:
    """Send waiting e-mails about accounts and about deletions of organizations."""
    if sent := account_emails.send_pending_emails() + deletion.send_notices():
        log.info("messages.sent", count=sent)

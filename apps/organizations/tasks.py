"""Celery tasks of organizations."""

from __future__ import annotations

import structlog
from celery import shared_task

from apps.organizations.accounts import account_emails
from apps.organizations.erasure import erase_deleted
from apps.organizations.journal import idempotency

log = structlog.get_logger(__name__)


@shared_task(name="organizations.erase_deleted", time_limit=1800)
def erase() -> None:
    """Erase the data of deleted organizations. An interrupted run is completed by the next."""
    erased = erase_deleted()
    log.info("organizations.erased", organizations=[str(one) for one in erased])


@shared_task(name="organizations.sweep_idempotent_answers", time_limit=600)
def sweep_idempotent_answers() -> None:
    """Delete expired idempotent answers. An interrupted run is completed by the next."""
    log.info("idempotent_answers.swept", rows=idempotency.sweep())


@shared_task(name="organizations.send_messages", time_limit=600)
def send_messages() -> None:
    """Send waiting account e-mails."""
    if sent := account_emails.send_pending_emails():
        log.info("messages.sent", count=sent)

"""Mail that waits: what cannot be sent, however much there is, keeps other people's waiting for a round at most."""

from __future__ import annotations

from datetime import timedelta
from smtplib import SMTPRecipientsRefused
from typing import Any

import pytest
from django.core import mail
from django.core.mail import EmailMessage
from django.utils import timezone

from apps.organizations.accounts import account_emails
from apps.organizations.models import Invitation, User
from tests.support.cast import World, make_user


@pytest.fixture(autouse=True)
def _few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_emails, "_AT_ONCE", 5)
    monkeypatch.setattr(account_emails, "_tried_last", {})
    send = EmailMessage.send

    def refuse(message: EmailMessage, *given: Any, **named: Any) -> int:
        if message.to[0].startswith("nowhere"):
            raise SMTPRecipientsRefused({message.to[0]: (550, b"no such mailbox")})
        return send(message, *given, **named)

    monkeypatch.setattr(EmailMessage, "send", refuse)


def test_addresses_that_refuse_mail_keep_no_other_waiting_for_more_than_a_round(world: World) -> None:
    for number in range(10):
        make_user(f"nowhere{number}")
    User.objects.filter(email__startswith="nowhere").update(password_reset_wanted_at=timezone.now())
    last = make_user("Zoe")
    User.objects.filter(pk=last.pk).update(password_reset_wanted_at=timezone.now())
    assert sum(account_emails.send_pending_emails() for _ in range(3)) == 1
    assert [message.to for message in mail.outbox] == [["zoe@example.com"]]
    assert User.objects.exclude(password_reset_wanted_at=None).count() == 10


def test_a_crowd_of_invitations_keeps_anothers_waiting_for_a_round(world: World) -> None:
    soon = timezone.now() + timedelta(days=1)
    for number in range(10):
        Invitation.objects.create(organization=world.acme, email=f"nowhere{number}@example.com", expires_at=soon)
    Invitation.objects.create(organization=world.elsewhere, email="zoe@example.com", expires_at=soon)
    assert sum(account_emails.send_pending_emails() for _ in range(3)) == 1
    assert [message.to for message in mail.outbox] == [["zoe@example.com"]]

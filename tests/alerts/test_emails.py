"""E-mails about alerts: to whom, together, not lost, and readable as files."""

from __future__ import annotations

from datetime import timedelta
from email import message_from_bytes, policy
from pathlib import Path
from smtplib import SMTPRecipientsRefused
from typing import Any

import pytest
from django.core import mail
from django.utils import timezone

from apps.alerts import actions, emails
from apps.alerts.access import reader_of
from apps.alerts.models import AlertDelivery
from apps.organizations.models import Organization
from tests.alerts.scenarios import fire, make_rule
from tests.log_sinks.sinks import make_sink
from tests.support.cast import World


@pytest.fixture
def off(world: World) -> World:
    """Two sinks of Acme's are switched off."""
    make_rule(world, "integration_off")
    for name in ("archive", "second\nBcc: x@example.com"):
        make_sink(world, "webhook", "https://example.com/", name=name, status="inactive")
    fire(world)
    return world


def test_alerts_of_one_time_are_one_email(off: World) -> None:
    assert emails.send_due(timezone.now()) == 1
    [message] = mail.outbox
    assert message.subject == "Acme: 2 alerts"
    assert "The log sink archive is switched off\n\nA member switched it off." in message.body
    assert f"/app/o/{off.acme.id}/alerts\n" in message.body
    assert set(AlertDelivery.objects.values_list("status", flat=True)) == {"sent"}


def test_each_member_chooses(off: World) -> None:
    actions.choose_emails(reader=reader_of(off.adam, off.acme), by_email=False)
    assert emails.recipients(off.acme) == [off.olivia.email]
    actions.choose_emails(reader=reader_of(off.olivia, off.acme), by_email=False)
    assert [emails.send_due(timezone.now()), mail.outbox] == [0, []]
    assert not AlertDelivery.objects.filter(status="waiting").exists()


def test_a_mail_server_that_is_away_loses_nothing(off: World, monkeypatch: pytest.MonkeyPatch) -> None:
    now = timezone.now()

    def refuse(*_: Any) -> None:
        raise ConnectionRefusedError

    with monkeypatch.context() as patch:
        patch.setattr(mail.EmailMessage, "send", refuse)
        assert emails.send_due(now) == 0
    # Leased for a while, then sent once.
    assert [emails.send_due(now), emails.send_due(now + emails.LEASE), emails.send_due(now + emails.LEASE)] == [0, 1, 0]


def test_an_address_that_is_refused_delays_no_other_organization(off: World, monkeypatch: pytest.MonkeyPatch) -> None:
    make_rule(off, "integration_off")
    fire(off)
    AlertDelivery.objects.all().update(next_attempt_at=timezone.now() - timedelta(minutes=1))
    send = mail.EmailMessage.send

    def refuse_olivia(message: mail.EmailMessage) -> int:
        if off.olivia.email in message.bcc:
            raise SMTPRecipientsRefused({})
        return send(message)

    second = make_sink(off, "webhook", "https://example.com/", name="third", status="inactive")
    type(second).objects.filter(pk=second.pk).update(organization=off.elsewhere)
    from apps.alerts.evaluation import evaluate, watch

    watch(off.elsewhere.id, timezone.now())
    type(second).objects.filter(pk=second.pk).update(updated_at=timezone.now())
    evaluate([off.elsewhere.id], timezone.now())
    monkeypatch.setattr(mail.EmailMessage, "send", refuse_olivia)
    assert emails.send_due(timezone.now()) == 1
    assert [message.bcc for message in mail.outbox] == [[off.sam.email]]


def test_deleted_organizations_get_no_email(off: World) -> None:
    Organization.objects.filter(pk=off.acme.pk).update(status="deleted")
    assert emails.send_due(timezone.now()) == 0


def test_an_email_is_a_file_that_mail_programs_read(off: World, settings: Any, tmp_path: Path) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
    settings.EMAIL_FILE_PATH = str(tmp_path)
    assert emails.send_due(timezone.now()) == 1
    [path] = tmp_path.iterdir()
    message = message_from_bytes(path.read_bytes().partition(b"-" * 79)[0], policy=policy.default)
    first = AlertDelivery.objects.order_by("id")[0]
    assert (message["Subject"], message["Bcc"]) == ("Acme: 2 alerts", None)
    assert message["Message-ID"] == f"<alert-{first.id}@model-gateway>"
    body = message.get_content()
    assert "Bcc: x@example.com is switched off" in body

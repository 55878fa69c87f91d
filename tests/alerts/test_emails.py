"""E-mails about alerts: to whom, together, not lost, and readable as files."""

from __future__ import annotations

from datetime import datetime, time, timedelta
from email import message_from_bytes, policy
from pathlib import Path
from smtplib import SMTPRecipientsRefused
from threading import Event, Thread
from typing import Any

import pytest
from django.core import mail
from django.db import connection, transaction
from django.utils import timezone

from apps.alerts import actions, delivery, emails, metrics
from apps.alerts.access import reader_of
from apps.alerts.models import AlertDelivery, AlertDestination, AlertReader
from apps.kernel.valkey.redis import client
from apps.organizations.models import Organization
from tests.alerts.scenarios import fire, make_destination, make_rule
from tests.log_sinks.sinks import make_sink
from tests.stack.product import eventually
from tests.support.cast import World
from tests.support.sink_receiver import Receiver


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
    assert emails.find_recipients(off.acme, timezone.now()).addresses == [off.olivia.email]
    actions.choose_emails(reader=reader_of(off.olivia, off.acme), by_email=False)
    assert [emails.send_due(timezone.now()), mail.outbox] == [0, []]
    assert not AlertDelivery.objects.filter(status="waiting").exists()


def quiet(off: World, begin: str, end: str, zone: str = "UTC") -> None:
    choices = {"quiet_from": time.fromisoformat(begin), "quiet_until": time.fromisoformat(end), "time_zone": zone}
    actions.choose_emails(reader=reader_of(off.olivia, off.acme), **choices)


@pytest.mark.parametrize(
    ("begin", "end", "zone", "at", "is_quiet"),
    [
        ("22:00", "07:00", "UTC", "22:00", True),
        ("22:00", "07:00", "UTC", "06:59", True),
        ("22:00", "07:00", "UTC", "07:00", False),
        ("12:00", "13:00", "UTC", "12:30", True),
        ("12:00", "13:00", "UTC", "13:00", False),
        ("12:00", "13:00", "Asia/Tokyo", "03:30", True),
    ],
)
def test_quiet_hours_may_span_midnight(begin: str, end: str, zone: str, at: str, is_quiet: bool) -> None:
    hours = {"quiet_from": time.fromisoformat(begin), "quiet_until": time.fromisoformat(end), "time_zone": zone}
    assert AlertReader(**hours).is_quiet_at(datetime.fromisoformat(f"2026-11-20T{at}:00Z")) is is_quiet
    assert AlertReader().is_quiet_at(timezone.now()) is False


def test_emails_of_quiet_hours_come_as_one_when_they_end(off: World, monkeypatch: pytest.MonkeyPatch) -> None:
    now = timezone.now()
    begin, end = f"{now - timedelta(hours=1):%H:%M}", f"{now + timedelta(hours=1):%H:%M}"
    quiet(off, begin, end)
    assert emails.send_due(now) == 1
    assert [message.bcc for message in mail.outbox] == [[off.adam.email]]
    make_sink(off, "webhook", "https://example.com/", name="third", status="inactive")
    fire(off)
    assert [emails.send_due(timezone.now()), emails.send_due(now + timedelta(minutes=30))] == [1, 0]
    morning = now + timedelta(hours=2)
    with monkeypatch.context() as patch:
        patch.setattr(mail.EmailMessage, "send", lambda *_: (_ for _ in ()).throw(ConnectionRefusedError()))
        assert emails.send_due(morning) == 0
    mail.outbox.clear()
    # Another process has the lease of the failed one, then it is sent once.
    later = morning + emails.LEASE
    assert [emails.send_due(morning), emails.send_due(later), emails.send_due(later)] == [0, 1, 0]
    [digest] = mail.outbox
    assert (digest.bcc, digest.subject) == ([off.olivia.email], "Acme: 3 alerts")
    assert digest.body.index("archive") < digest.body.index("third")
    assert AlertReader.objects.get(membership__user=off.olivia).held_since is None


def hold_two_alerts(off: World) -> datetime:
    """Two alerts wait for Olivia; return the moment when her quiet hours are over."""
    now = timezone.now()
    quiet(off, f"{now - timedelta(hours=1):%H:%M}", f"{now + timedelta(hours=1):%H:%M}")
    assert emails.send_due(now) == 1
    mail.outbox.clear()
    return now + timedelta(hours=2)


def digests(off: World) -> list[str]:
    """Return the subjects of the e-mails to Olivia."""
    return [message.subject for message in mail.outbox if off.olivia.email in message.bcc]


def test_an_alert_of_a_run_beside_the_digest_comes_with_the_next(off: World, monkeypatch: pytest.MonkeyPatch) -> None:
    morning = hold_two_alerts(off)
    send, beside = mail.EmailMessage.send, []

    def send_slowly(message: mail.EmailMessage) -> int:
        if not beside:
            # Another run has an alert for the same people while this one's mail server takes its time.
            beside.append(True)
            make_sink(off, "webhook", "https://example.com/", name="third", status="inactive")
            fire(off)
            assert emails.send_due(morning) == 1
        return send(message)

    monkeypatch.setattr(mail.EmailMessage, "send", send_slowly)
    assert emails.send_due(morning) == 1
    assert digests(off) == ["Acme: 2 alerts"]
    assert AlertReader.objects.get(membership__user=off.olivia).held_since is not None
    assert [emails.send_due(morning), emails.send_due(morning)] == [1, 0]
    assert digests(off) == ["Acme: 2 alerts", "Acme: The log sink third is switched off"]
    assert AlertReader.objects.get(membership__user=off.olivia).held_since is None


def is_a_row_waited_for() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_locks WHERE NOT granted AND locktype IN ('transactionid', 'tuple')")
        return cursor.fetchone() is not None


@pytest.mark.django_db(transaction=True)
def test_the_end_of_a_digest_waits_for_a_run_that_holds_an_alert_back(
    off: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    morning = hold_two_alerts(off)
    make_sink(off, "webhook", "https://example.com/", name="third", status="inactive")
    fire(off)
    [third] = emails._take(off.acme.id, timezone.now())
    held, waits = Event(), Event()

    def hold_back() -> None:
        with transaction.atomic():
            emails._send([third], morning)
            held.set()
            # The digest's run waits for this transaction at its end.
            eventually(is_a_row_waited_for, patience=20)
            waits.set()
        connection.close()

    end = emails._end_waiting

    def end_after_the_other_began(*about: Any) -> None:
        other.start()
        assert held.wait(20)
        end(*about)

    other = Thread(target=hold_back)
    monkeypatch.setattr(emails, "_end_waiting", end_after_the_other_began)
    assert emails.send_due(morning) == 1
    other.join(20)
    assert waits.is_set()
    monkeypatch.undo()
    assert emails.send_due(morning) == 1
    assert digests(off) == ["Acme: 2 alerts", "Acme: The log sink third is switched off"]


def test_a_person_without_emails_gets_no_digest(off: World) -> None:
    now = timezone.now()
    quiet(off, f"{now - timedelta(hours=1):%H:%M}", f"{now + timedelta(hours=1):%H:%M}")
    emails.send_due(now)
    mail.outbox.clear()
    actions.choose_emails(reader=reader_of(off.olivia, off.acme), by_email=False)
    assert (emails.send_due(now + timedelta(hours=2)), mail.outbox) == (0, [])
    assert not AlertReader.objects.exclude(held_since=None).exists()


def test_messages_are_counted_for_operators(off: World, receiver: Receiver) -> None:
    client().delete("alert_messages")
    hook = make_destination(off, "webhook", f"{receiver.origin}/hook")
    make_sink(off, "webhook", "https://example.com/", name="third", status="inactive")
    fire(off)
    receiver.status = 500
    assert (delivery.deliver(hook.pk), emails.send_due(timezone.now())) == (0, 1)
    receiver.status = 200
    AlertDestination.objects.update(next_attempt_at=timezone.now() - timedelta(seconds=1), leased_until=None)
    assert delivery.deliver(hook.pk) == 1
    text = metrics.exposition().decode()
    for line in (
        'gateway_alert_messages_total{kind="email",outcome="sent"} 1.0',
        'gateway_alert_messages_total{kind="webhook",outcome="failed"} 1.0',
        'gateway_alert_messages_total{kind="webhook",outcome="sent"} 1.0',
    ):
        assert line in text


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

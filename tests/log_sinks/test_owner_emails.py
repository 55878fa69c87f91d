"""E-mail to owners about log sinks that were switched off: once, and not lost."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import mail
from django.utils import timezone

from apps.destinations import delivery as runs
from apps.log_sinks import owner_emails
from apps.log_sinks.delivery import deliver
from apps.log_sinks.models import LogSink
from apps.organizations.models import Membership
from tests.log_sinks.sinks import SECRET, log_row, make_sink
from tests.support.cast import World
from tests.support.sink_receiver import Receiver


@pytest.fixture
def sink(world: World, receiver: Receiver) -> LogSink:
    return make_sink(world, "webhook", f"{receiver.origin}/hook")


def test_owners_are_told_once_that_a_sink_was_switched_off(
    world: World, sink: LogSink, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_row(world)
    receiver.status = 500
    deliver(sink.pk)
    assert (owner_emails.tell_owners(), mail.outbox) == (0, [])
    since = timezone.now() - runs.PATIENCE
    LogSink.objects.update(failing_since=since, name="Nightly\nBcc: x@example.com")
    LogSink.objects.update(next_attempt_at=timezone.now(), leased_until=None)
    deliver(sink.pk)

    def refuse(*_: Any) -> None:
        raise ConnectionRefusedError

    with monkeypatch.context() as patch:
        patch.setattr(mail.EmailMessage, "send", refuse)
        assert owner_emails.tell_owners() == 0
    assert [owner_emails.tell_owners() for _ in range(3)] == [1, 0, 0]
    [message] = mail.outbox
    assert message.subject == "The log sink Nightly Bcc: x@example.com of Acme was switched off"
    assert (message.to, message.bcc) == ([], [world.olivia.email])
    assert "Last error: It answered 500" in message.body
    assert f"{since:%Y-%m-%d %H:%M} UTC" in message.body
    assert f"/app/o/{world.acme.pk}/log-sinks" in message.body
    assert SECRET not in message.body


def test_of_a_sink_that_is_on_again_or_has_no_owners_nobody_is_told(world: World, sink: LogSink) -> None:
    LogSink.objects.update(disabled_notice_due=True, status="active")
    assert owner_emails.tell_owners() == 0
    LogSink.objects.update(status="failed", failing_since=timezone.now())
    Membership.objects.filter(organization=world.acme, role="owner").delete()
    assert owner_emails.tell_owners() == 1
    assert mail.outbox == []

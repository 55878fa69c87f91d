"""Delivery to destinations: every kind's format, the same id when repeated, and slow ones that delay no others."""

from __future__ import annotations

import json
from datetime import timedelta
from threading import Event, Thread
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from apps.alerts import delivery, emails, firing
from apps.alerts.delivery import AT_ONCE, AT_ONCE_PER_ORGANIZATION, PATIENCE, deliver, find_due, purge
from apps.alerts.models import Alert, AlertDelivery, AlertDestination
from apps.organizations.models import AuditEntry
from tests.alerts.scenarios import ROUTING_KEY, fire, make_destination, make_rule, set_balance, spend
from tests.support.cast import World, make_key
from tests.support.sink_receiver import Receiver


def alert_of(world: World) -> Alert:
    """Fire an alert of Acme's."""
    make_rule(world, "balance_low", amount="5")
    spend(make_key(world.olivia, world.project).key, "1")
    set_balance(world, "1")
    [alert] = fire(world)
    return alert


def make_due(destination: AlertDestination) -> None:
    AlertDestination.objects.filter(pk=destination.pk).update(next_attempt_at=timezone.now(), leased_until=None)


def test_slack_gets_blocks_without_markup_of_tenants(world: World, receiver: Receiver) -> None:
    type(world.acme).objects.filter(pk=world.acme.pk).update(name="<!channel> & co")
    destination = make_destination(world, "slack", f"{receiver.origin}/services/T0/B0/secret")
    alert = alert_of(world)
    assert deliver(destination.pk) == 1
    [taken] = receiver.taken
    assert (taken.path, taken.headers["content-type"]) == ("/services/T0/B0/secret", "application/json")
    content = json.loads(taken.body)
    assert content["text"] == alert.title
    [block] = content["blocks"]
    heading, text, link = block["text"]["text"].split("\n")
    assert (heading, text) == (f"*{alert.title}*", alert.text)
    assert link.endswith(f"/app/o/{world.acme.id}/billing|&lt;!channel&gt; &amp; co>")
    assert "secret" not in destination.url


def test_teams_gets_an_adaptive_card(world: World, receiver: Receiver) -> None:
    destination = make_destination(world, "teams", f"{receiver.origin}/workflows/secret?sig=abc")
    alert = alert_of(world)
    assert deliver(destination.pk) == 1
    [taken] = receiver.taken
    assert taken.path == "/workflows/secret?sig=abc"
    [attachment] = json.loads(taken.body)["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attachment["content"]
    assert [block["inlines"][0]["text"] for block in card["body"]] == [alert.title, alert.text, "Acme"]
    assert card["actions"][0]["url"].endswith(f"/app/o/{world.acme.id}/billing")


def test_pagerduty_gets_an_event_that_ends_with_the_alert(world: World, receiver: Receiver) -> None:
    destination = make_destination(world, "pagerduty", f"{receiver.origin}/v2/enqueue")
    receiver.status = 202
    alert = alert_of(world)
    set_balance(world, "100")
    fire(world)
    assert deliver(destination.pk) == 2
    trigger, resolve = (json.loads(taken.body) for taken in receiver.taken)
    assert (trigger["event_action"], trigger["dedup_key"], trigger["routing_key"]) == (
        "trigger",
        str(alert.id),
        ROUTING_KEY,
    )
    assert trigger["payload"]["summary"] == f"Acme: {alert.title}"
    assert (trigger["payload"]["severity"], trigger["payload"]["class"]) == ("error", "balance_low")
    assert trigger["payload"]["custom_details"] == {"text": alert.text, "balance": "1", "threshold": "5"}
    assert resolve == {"event_action": "resolve", "dedup_key": str(alert.id), "routing_key": ROUTING_KEY}


def test_a_resolved_alert_goes_to_the_destinations_that_had_it(world: World) -> None:
    early = make_destination(world, "webhook", "https://example.com/", name="early")
    off = make_destination(world, "webhook", "https://example.com/", name="off")
    alert_of(world)
    make_destination(world, "webhook", "https://example.com/", name="late")
    AlertDestination.objects.filter(pk=off.pk).update(status="inactive")
    set_balance(world, "100")
    fire(world)
    ends = AlertDelivery.objects.filter(phase="resolved").order_by("id")
    assert list(ends.values_list("destination", flat=True)) == [None, early.pk]


def test_a_crash_before_a_delivery_is_recorded_repeats_it_under_the_same_id(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination = make_destination(world, "webhook", f"{receiver.origin}/hook")
    alert_of(world)
    with monkeypatch.context() as dying:
        dying.setattr(delivery, "_finish", _die)
        with pytest.raises(KeyboardInterrupt):
            deliver(destination.pk)
    make_due(destination)
    assert [deliver(destination.pk), deliver(destination.pk)] == [1, 0]
    first, second = receiver.taken
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body


def _die(*_: Any) -> None:
    raise KeyboardInterrupt


def test_a_failing_destination_is_tried_later_and_switched_off_after_three_days(
    world: World, receiver: Receiver
) -> None:
    destination = make_destination(world, "slack", f"{receiver.origin}/services/secret")
    alert_of(world)
    receiver.status, receiver.answer = 404, b"no such hook services/secret"
    assert deliver(destination.pk) == 0
    destination.refresh_from_db()
    assert (destination.failures, destination.status) == (1, "active")
    assert destination.last_error == "It answered 404: no such hook ..."
    assert find_due(timezone.now()) == []
    AlertDestination.objects.update(failing_since=timezone.now() - PATIENCE)
    make_due(destination)
    assert deliver(destination.pk) == 0
    destination.refresh_from_db()
    assert destination.status == "failed"
    assert AuditEntry.objects.filter(action="alert_destination.disable", resource_id=str(destination.pk)).count() == 1
    # The members are alerted of it.
    make_rule(world, "integration_off")
    AlertDestination.objects.update(last_error_at=timezone.now())
    assert fire(world)[-1].title == "The alert destination slack is switched off"


def test_destinations_that_hang_delay_neither_their_own_organization_nor_others(world: World) -> None:
    slow = [make_destination(world, "webhook", "https://example.com/", name=str(number)) for number in range(9)]
    alert = alert_of(world)
    other = make_destination(world, "webhook", "https://example.com/", organization=world.elsewhere)
    AlertDelivery.objects.create(alert=alert, destination=other, phase="fired")
    now = timezone.now()
    due = find_due(now)
    assert len(set(due) & {one.pk for one in slow}) == AT_ONCE_PER_ORGANIZATION
    assert other.pk in due
    # While they hang, the organization's others wait, and another organization's do not.
    AlertDestination.objects.filter(pk__in=[one.pk for one in slow[:AT_ONCE_PER_ORGANIZATION]]).update(
        leased_until=now + timedelta(seconds=60)
    )
    assert find_due(now) == [other.pk]
    AlertDestination.objects.filter(pk__in=[one.pk for one in slow[:AT_ONCE]]).update(
        leased_until=now + timedelta(seconds=60)
    )
    assert find_due(now) == []


@pytest.mark.django_db(transaction=True)
def test_a_destination_that_hangs_delays_no_other(world: World, receiver: Receiver) -> None:
    slow = make_destination(world, "webhook", f"{receiver.origin}/slow", name="slow")
    other = make_destination(world, "webhook", f"{receiver.origin}/other", name="other")
    alert_of(world)
    is_asked, may_answer = Event(), Event()
    sent: list[int] = []

    def hang() -> None:
        if receiver.taken[-1].path == "/slow":
            is_asked.set()
            may_answer.wait(60)

    def run() -> None:
        sent.append(deliver(slow.pk))
        connection.close()

    receiver.then = hang
    thread = Thread(target=run)
    thread.start()
    try:
        assert is_asked.wait(60)
        # Another process leaves the slow one alone, and serves the other.
        assert (find_due(timezone.now()), deliver(slow.pk)) == ([other.pk], 0)
        assert (deliver(other.pk), emails.send_due(timezone.now()), sent) == (1, 1, [])
    finally:
        may_answer.set()
        thread.join(30)
    assert (sent, [one.path for one in receiver.taken]) == ([1], ["/slow", "/other"])


def test_messages_that_waited_too_long_or_for_a_deleted_destination_are_dropped(world: World) -> None:
    gone = make_destination(world, "webhook", "https://example.com/", name="gone")
    late = make_destination(world, "webhook", "https://example.com/", name="late")
    alert_of(world)
    AlertDestination.objects.filter(pk=gone.pk).update(status="deleted")
    AlertDelivery.objects.filter(destination=late).update(created_at=timezone.now() - PATIENCE - timedelta(minutes=1))
    assert purge(timezone.now()) == 2
    found = dict(AlertDelivery.objects.values_list("destination__name", "status"))
    assert found == {"gone": "dropped", "late": "dropped", None: "waiting"}


def test_alerts_are_kept_for_ninety_days_but_for_open_ones(world: World) -> None:
    alert = alert_of(world)
    rule = alert.rule
    old = timezone.now() - timedelta(days=91)
    for kind, resolved_at in (("balance_low", old), ("payment_failed", None)):
        Alert.objects.create(
            organization=world.acme,
            rule=rule,
            kind=kind,
            subject=kind,
            title=kind,
            fired_at=old,
            resolved_at=resolved_at,
        )
    Alert.objects.filter(pk=alert.pk).update(fired_at=old)
    assert [firing.expire(timezone.now()) for _ in range(2)] == [2, 0]
    assert list(Alert.objects.all()) == [alert]

"""Evaluation: turns of organizations, defaults of new ones, concurrent evaluators, and what a crash leaves."""

from __future__ import annotations

from datetime import timedelta
from threading import Barrier, Thread
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from apps.alerts import actions, evaluation, firing
from apps.alerts.evaluation import INTERVAL, evaluate, evaluate_due, watch
from apps.alerts.models import Alert, AlertDelivery, AlertRule, AlertWatch
from apps.organizations.models import Organization
from tests.alerts.scenarios import add_rule, fire, make_destination, make_rule, set_balance, spend
from tests.log_sinks.sinks import make_sink
from tests.support.cast import World, make_key


def run_low(world: World) -> None:
    """Leave Acme a low balance."""
    spend(make_key(world.olivia, world.project).key, "1")
    set_balance(world, "1")


def test_every_organization_begins_with_rules_and_is_evaluated_a_minute_apart(world: World) -> None:
    run_low(world)
    now = timezone.now()
    assert [evaluate_due(now), evaluate_due(now), evaluate_due(now + INTERVAL)] == [2, 0, 2]
    rules = AlertRule.objects.filter(organization=world.acme).order_by("created_at", "id")
    assert [one.summary for one in rules] == [
        "Balance below 5 USD",
        "80% of a limit used",
        "100% of a limit used",
        "Log sink, MCP server or alert destination off",
        "Payment or top-up failed",
    ]
    assert [(one.organization_id, one.kind) for one in Alert.objects.all()] == [(world.acme.id, "balance_low")]


def test_a_default_rule_that_was_deleted_stays_deleted(world: World) -> None:
    watch(world.acme.id, timezone.now())
    AlertRule.objects.filter(organization=world.acme, kind="balance_low").update(status="deleted")
    watch(world.acme.id, timezone.now())
    run_low(world)
    assert fire(world) == []


def test_deleted_organizations_are_not_evaluated(world: World) -> None:
    run_low(world)
    watch(world.acme.id, timezone.now())
    Organization.objects.filter(pk=world.acme.pk).update(status="deleted")
    assert evaluate_due(timezone.now()) == 1
    assert not Alert.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_two_evaluators_at_once_fire_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    make_rule(world, "balance_low", amount="5")
    destination = make_destination(world, "webhook", "https://example.com/hook")
    run_low(world)
    both_have_read, update = Barrier(2, timeout=20), evaluation.update_alerts

    def update_together(*given: Any) -> tuple[int, int]:
        both_have_read.wait()
        return update(*given)

    monkeypatch.setattr(evaluation, "update_alerts", update_together)

    def run() -> None:
        evaluate([world.acme.id], timezone.now())
        connection.close()

    threads = [Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    alert = Alert.objects.get()
    deliveries = AlertDelivery.objects.order_by("id").values_list("alert_id", "phase", "destination_id")
    assert list(deliveries) == [(alert.id, "fired", None), (alert.id, "fired", destination.id)]


@pytest.mark.django_db(transaction=True)
def test_two_processes_take_different_organizations(world: World) -> None:
    for organization in (world.acme, world.elsewhere):
        watch(organization.id, timezone.now())
    taken: list[int] = []
    start = Barrier(2, timeout=20)

    def run() -> None:
        start.wait()
        taken.append(evaluate_due(timezone.now()))
        connection.close()

    threads = [Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sum(taken) == 2


def test_a_crash_while_firing_loses_nothing_and_leaves_no_half(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    make_rule(world, "balance_low", amount="5")
    run_low(world)
    with monkeypatch.context() as dying:
        dying.setattr(firing, "_queue_fired", _die)
        with pytest.raises(KeyboardInterrupt):
            fire(world)
    assert not Alert.objects.exists()
    [alert] = fire(world)
    assert list(alert.deliveries.values_list("phase", "status")) == [("fired", "waiting")]


def _die(*_: Any) -> None:
    raise KeyboardInterrupt


def test_a_rule_that_is_switched_off_resolves_its_alerts(world: World) -> None:
    rule = make_rule(world, "balance_low", amount="5")
    add_rule(world, "payment_failed")
    run_low(world)
    [alert] = fire(world)
    actions.change_rule(rule=rule, changes={"status": "inactive"})
    alert.refresh_from_db()
    assert alert.resolved_at is not None
    assert list(alert.deliveries.order_by("id").values_list("phase", flat=True)) == ["fired", "resolved"]
    assert fire(world) == [alert]
    actions.change_rule(rule=rule, changes={"status": "active"})
    assert len(fire(world)) == 2


def test_new_alerts_of_a_rule_are_bounded_and_the_others_follow(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firing, "MAX_NEW", 2)
    make_rule(world, "integration_off")
    for number in range(3):
        make_sink(world, "webhook", "https://example.com/", name=str(number), status="inactive")
    assert [len(fire(world)) for _ in range(3)] == [2, 3, 3]
    monkeypatch.setattr(firing, "MAX_OPEN", 3)
    make_sink(world, "webhook", "https://example.com/", name="3", status="inactive")
    assert len(fire(world)) == 3


def test_events_of_earlier_days_leave_room_for_new_alerts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firing, "MAX_OPEN", 2)
    rule = make_rule(world, "price_change")
    add_rule(world, "balance_low", amount="5")
    run_low(world)
    for number in range(2):
        Alert.objects.create(
            organization=world.acme, rule=rule, kind=rule.kind, subject=str(number), fired_at=timezone.now()
        )
    assert len(fire(world)) == 2
    Alert.objects.update(fired_at=timezone.now() - timedelta(days=2))
    assert [one.kind for one in fire(world)] == ["price_change", "price_change", "balance_low"]


def test_an_erased_organization_gets_no_alert(world: World) -> None:
    make_rule(world, "balance_low", amount="5")
    run_low(world)
    AlertWatch.objects.filter(pk=world.acme.pk).delete()
    assert fire(world) == []


def test_a_reading_far_in_the_past_is_not_repeated(world: World) -> None:
    make_rule(world, "balance_low", amount="5")
    run_low(world)
    first = fire(world)
    assert fire(world, timezone.now() + timedelta(days=30)) == first

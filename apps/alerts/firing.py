"""Firing and resolving: writes alerts with the deliveries of their messages, once for each cause; and their retention.

The organization's schedule is locked meanwhile, so that concurrent evaluations wait for each other; a unique constraint
refuses a second open alert for a cause besides. An alert and its deliveries are one transaction: nothing is sent of an
alert that is not stored, and no stored alert lacks its deliveries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from apps.alerts.conditions import Reading
from apps.alerts.kind_names import EVENTS
from apps.alerts.models import Alert, AlertDelivery, AlertDestination, AlertRule, AlertWatch
from apps.kernel.postgres.rows import delete_in_pieces

# New alerts of one rule in one evaluation; further ones follow a minute later.
MAX_NEW = 20
# Open alerts and a day's events of an organization; further causes are alerted of once there are fewer.
MAX_OPEN = 1_000
_MAX_TITLE, _MAX_SUBJECT = 300, 300
# How long a resolved alert, and one of an event, is kept. Open ones stay.
KEPT: Final = timedelta(days=90)
# Identifies a cause: a rule and the subject within it.
Cause = tuple[UUID, str]


def causes_of(alerts: Iterable[Alert]) -> Mapping[Cause, Alert]:
    """Return open alerts by their cause."""
    return {(one.rule_id, one.subject): one for one in alerts}


def open_alerts(organizations: Collection[UUID]) -> list[Alert]:
    """Return the unresolved alerts of organizations, oldest first. Those of events are never resolved."""
    return list(Alert.objects.filter(organization__in=organizations, resolved_at=None).order_by("id"))


def has_changed(readings: Sequence[Reading], known: Mapping[Cause, Alert], evaluated: Collection[UUID]) -> bool:
    """Return whether `update_alerts` would write anything."""
    return bool(_new_ones(readings, known) or _recovered(readings, known.values(), evaluated))


@transaction.atomic
def update_alerts(
    organization_id: UUID, readings: Sequence[Reading], evaluated: Collection[UUID], now: datetime
) -> tuple[int, int]:
    """Fire the organization's new alerts and resolve those whose rule was evaluated without a reading of their cause.

    `evaluated` are the ids of the rules whose readings are complete. Returns how many were fired and resolved. Does
    nothing if the organization is erased meanwhile.
    """
    if not _lock(organization_id):
        return 0, 0
    known = causes_of(open_alerts([organization_id]))
    # A rule may have been switched off or deleted since it was read.
    active = AlertRule.objects.filter(organization=organization_id, status=AlertRule.Status.ACTIVE)
    rules = set(active.values_list("id", flat=True))
    new = [one for one in _new_ones(readings, known) if one.rule.id in rules][: _room(known.values(), now)]
    fired = Alert.objects.bulk_create(
        Alert(
            organization_id=organization_id,
            rule=one.rule,
            kind=one.rule.kind,
            subject=one.subject[:_MAX_SUBJECT],
            title=one.title[:_MAX_TITLE],
            text=one.text,
            page=one.page,
            figures=dict(one.figures),
            owners_told=one.owners_told,
            fired_at=now,
        )
        for one in new
    )
    resolved = _recovered(readings, known.values(), evaluated)
    _resolve(resolved, now)
    _queue_fired(organization_id, fired)
    _queue_resolved(resolved)
    return len(fired), len(resolved)


@transaction.atomic
def resolve_rule(rule: AlertRule, now: datetime) -> None:
    """Resolve the open alerts of a rule that is switched off or deleted, in the caller's transaction."""
    if not _lock(rule.organization_id):
        return
    alerts = list(Alert.objects.filter(rule=rule, resolved_at=None).exclude(kind__in=EVENTS))
    _resolve(alerts, now)
    _queue_resolved(alerts)


def _lock(organization_id: UUID) -> bool:
    """Lock the schedule of an organization until the transaction ends; return whether there is one."""
    return AlertWatch.objects.select_for_update().filter(pk=organization_id).first() is not None


def _new_ones(readings: Sequence[Reading], known: Mapping[Cause, Alert]) -> list[Reading]:
    """Return the readings that fire and have no open alert, a bounded number of each rule."""
    new: dict[Cause, Reading] = {}
    counts = Counter[UUID]()
    for one in readings:
        cause = _cause_of(one)
        if one.fires and cause not in known and cause not in new and counts[one.rule.id] < MAX_NEW:
            new[cause] = one
            counts[one.rule.id] += 1
    return list(new.values())


def _recovered(readings: Sequence[Reading], known: Iterable[Alert], evaluated: Collection[UUID]) -> list[Alert]:
    """Return the open alerts whose rule was evaluated and has no reading of their cause."""
    met = {_cause_of(one) for one in readings}
    return [
        alert
        for alert in known
        if alert.rule_id in evaluated and alert.kind not in EVENTS and (alert.rule_id, alert.subject) not in met
    ]


def _room(known: Iterable[Alert], now: datetime) -> int:
    """Return how many more alerts may fire. Events, which stay open, count for a day."""
    counted = sum(one.kind not in EVENTS or one.fired_at > now - timedelta(days=1) for one in known)
    return max(0, MAX_OPEN - counted)


def _cause_of(reading: Reading) -> Cause:
    return reading.rule.id, reading.subject[:_MAX_SUBJECT]


def _resolve(alerts: Sequence[Alert], now: datetime) -> None:
    for alert in alerts:
        alert.resolved_at = now
    Alert.objects.bulk_update(alerts, ["resolved_at"])


def _queue_fired(organization_id: UUID, alerts: Sequence[Alert]) -> None:
    """Queue the messages about new alerts: the e-mail, and one for each active destination of the rule."""
    if not alerts:
        return
    active = AlertDestination.objects.filter(organization=organization_id, status=AlertDestination.Status.ACTIVE)
    destinations = [None, *active.order_by("id")]
    AlertDelivery.objects.bulk_create(
        AlertDelivery(alert=alert, destination=destination, phase=AlertDelivery.Phase.FIRED)
        for alert in alerts
        for destination in destinations
        if destination is None or _is_told(alert.rule, destination)
    )


def _is_told(rule: AlertRule, destination: AlertDestination) -> bool:
    return rule.destination_ids is None or str(destination.id) in rule.destination_ids


def _queue_resolved(alerts: Sequence[Alert]) -> None:
    """Queue the messages about resolved alerts, to the destinations that had one about each and are still active."""
    fired = AlertDelivery.objects.filter(alert__in=alerts, phase=AlertDelivery.Phase.FIRED)
    fired = fired.filter(Q(destination=None) | Q(destination__status=AlertDestination.Status.ACTIVE))
    AlertDelivery.objects.bulk_create(
        AlertDelivery(alert_id=one.alert_id, destination_id=one.destination_id, phase=AlertDelivery.Phase.RESOLVED)
        for one in fired.order_by("id")
    )


def expire(now: datetime) -> int:
    """Delete alerts past their retention with their deliveries; return how many."""
    over = Q(resolved_at__isnull=False) | Q(kind__in=EVENTS)
    return delete_in_pieces(Alert.objects.filter(over, fired_at__lt=now - KEPT))

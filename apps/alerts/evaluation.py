"""Evaluation of rules, a minute apart: batches of organizations whose turn it is, with few queries for each batch.

A batch is taken by moving its turn on, which keeps other processes away from it. Process crashes lose nothing: the turn
comes again a minute later.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import structlog
from django.db import transaction

from apps.alerts.conditions import CONDITIONS, Reading
from apps.alerts.firing import causes_of, has_changed, open_alerts, update_alerts
from apps.alerts.kind_names import DEFAULT_RULES, KindName
from apps.alerts.models import AlertRule, AlertWatch
from apps.organizations.models import Organization

log = structlog.get_logger(__name__)

# Time between two evaluations of an organization.
INTERVAL: Final = timedelta(seconds=55)
# Organizations that are evaluated together; new schedules of one run; seconds after which a run takes no more batches.
BATCH, MAX_NEW_WATCHES, RUN = 200, 2_000, 40.0


def evaluate_due(now: datetime) -> int:
    """Evaluate the organizations whose turn it is; return how many. The next run continues where this one ends."""
    _watch_new_organizations(now)
    evaluated, ends = 0, time.monotonic() + RUN
    while time.monotonic() < ends:
        batch = _take_batch(now)
        if batch:
            evaluate(batch, now)
        evaluated += len(batch)
        if len(batch) < BATCH:
            break
    return evaluated


def evaluate(organizations: Sequence[UUID], now: datetime) -> None:
    """Evaluate the rules of organizations, and fire and resolve their alerts. Raises DatabaseError."""
    rules = list(
        AlertRule.objects.filter(organization__in=organizations, status=AlertRule.Status.ACTIVE).order_by("id")
    )
    readings, evaluated = _read(rules, now)
    alerts = open_alerts(organizations)
    for organization_id in organizations:
        own = [one for one in readings if one.rule.organization_id == organization_id]
        known = causes_of(one for one in alerts if one.organization_id == organization_id)
        if has_changed(own, known, evaluated):
            fired, resolved = update_alerts(organization_id, own, evaluated, now)
            log.info("alerts.updated", organization=str(organization_id), fired=fired, resolved=resolved)


def watch(organization_id: UUID, now: datetime) -> None:
    """Create an organization's schedule, due at once, with its default rules; nothing if it has one."""
    with transaction.atomic():
        _, is_new = AlertWatch.objects.get_or_create(
            organization_id=organization_id, defaults={"next_evaluation_at": now}
        )
        if is_new:
            AlertRule.objects.bulk_create(
                AlertRule(organization_id=organization_id, kind=kind, parameters=dict(parameters))
                for kind, parameters in DEFAULT_RULES
            )


def _watch_new_organizations(now: datetime) -> None:
    living = Organization.objects.exclude(status=Organization.Status.DELETED)
    new = living.filter(alert_watch=None).order_by("id").values_list("id", flat=True)
    for organization_id in new[:MAX_NEW_WATCHES]:
        watch(organization_id, now)


@transaction.atomic
def _take_batch(now: datetime) -> list[UUID]:
    """Return the organizations that have waited longest, and move their turn on."""
    due = AlertWatch.objects.filter(next_evaluation_at__lte=now).exclude(
        organization__status=Organization.Status.DELETED
    )
    locked = due.select_for_update(skip_locked=True, of=("self",)).order_by("next_evaluation_at")
    batch = list(locked.values_list("pk", flat=True)[:BATCH])
    AlertWatch.objects.filter(pk__in=batch).update(next_evaluation_at=now + INTERVAL)
    return batch


def _read(rules: Sequence[AlertRule], now: datetime) -> tuple[list[Reading], set[UUID]]:
    """Return the readings of rules, and the ids of the rules that could be evaluated."""
    readings, evaluated = list[Reading](), set[UUID]()
    for kind, condition in CONDITIONS.items():
        some = [rule for rule in rules if KindName(rule.kind) is kind]
        try:
            # A separate transaction, so that a failed query does not end the caller's transaction.
            with transaction.atomic():
                readings += list(condition(some, now)) if some else []
        except Exception:
            log.exception("alerts.not_evaluated", kind=str(kind), rules=len(some))
            continue
        evaluated |= {rule.id for rule in some}
    return readings, evaluated

"""Checks of waiting work: records for the settler, unreadable records, late scheduled tasks, and the reconciliation.

Reads only.
"""
# alone: the checks of one topic; registry.py lists those of all of them

from __future__ import annotations

from collections.abc import Iterator

from django.utils import timezone

from apps.gateway.models import Reconciliation
from apps.gateway.settlement import dead_letters, outbox
from gateway_project.diagnosis.check import Diagnosis
from gateway_project.observability import task_metrics

# Seconds that a record may wait, and after which no settler seems to run.
_LATE, _LOST = 30.0, 300.0
_LATE_RECONCILIATION_HOURS = 26


def find_queue() -> Iterator[Diagnosis]:
    """Yield how many records wait, for how long, and how many cannot be read."""
    depth, age = outbox.depth()
    finding = f"{depth} records wait, the oldest for {age:.0f} s" if depth else "no record waits"
    if age > _LOST:
        yield Diagnosis.error("queue", finding, "start a settler: `Procfile` has its command")
    elif age > _LATE:
        yield Diagnosis.warning("queue", finding, "look at the settler's log; another settler may run beside it")
    else:
        yield Diagnosis.ok("queue", finding)
    broken = dead_letters.count()
    if broken:
        yield Diagnosis.error(
            "queue", f"{broken} records cannot be read", "upgrade the settler: a newer one tries them again"
        )


def find_tasks() -> Iterator[Diagnosis]:
    """Yield which scheduled tasks are late."""
    states = task_metrics.read_states()
    late = [one.name for one in states if one.late]
    if not states:
        yield Diagnosis.warning(
            "tasks", "none has been scheduled yet", "start worker and beat: `Procfile` has their commands"
        )
    elif late:
        yield Diagnosis.warning("tasks", f"{', '.join(late)} late", "look at the logs of worker and beat")
    else:
        yield Diagnosis.ok("tasks", f"{len(states)} scheduled, none late")


def find_reconciliation() -> Iterator[Diagnosis]:
    """Yield what the last nightly reconciliation found, and how long ago."""
    last = Reconciliation.objects.filter(finished_at__isnull=False).order_by("-finished_at").first()
    if last is None or last.finished_at is None:
        yield Diagnosis.warning("reconciliation", "has not run yet; it does every night at 04:10 UTC")
        return
    hours = (timezone.now() - last.finished_at).total_seconds() / 3600
    finding = f"{last.found} differences in {last.compared} requests, {hours:.0f} h ago"
    if last.found or hours > _LATE_RECONCILIATION_HOURS:
        yield Diagnosis.warning(
            "reconciliation", finding, "look at Differences in the admin, and whether worker and beat run"
        )
    else:
        yield Diagnosis.ok("reconciliation", finding)

"""Checks of waiting work: records for the settler, unreadable records, late scheduled tasks.

Reads only.
"""

from __future__ import annotations

from collections.abc import Iterator

from apps.gateway.settlement import dead_letters, outbox
from gateway_project.observability import task_metrics
from gateway_project.observability.doctor.diagnosis import Diagnosis, doubtful, well, wrong

# Seconds that a record may wait, and after which no settler seems to run.
_LATE, _LOST = 30.0, 300.0


def queue() -> Iterator[Diagnosis]:
    """Yield how many records wait, for how long, and how many cannot be read."""
    depth, age = outbox.depth()
    finding = f"{depth} records wait, the oldest for {age:.0f} s" if depth else "no record waits"
    if age > _LOST:
        yield wrong("queue", finding, "start a settler: `Procfile` has its command")
    elif age > _LATE:
        yield doubtful("queue", finding, "look at the settler's log; another settler may run beside it")
    else:
        yield well("queue", finding)
    broken = dead_letters.count()
    if broken:
        yield wrong("queue", f"{broken} records cannot be read", "upgrade the settler: a newer one tries them again")


def tasks() -> Iterator[Diagnosis]:
    """Yield which scheduled tasks are late."""
    states = task_metrics.read_states()
    late = [one.name for one in states if one.late]
    if not states:
        yield doubtful("tasks", "none has been scheduled yet", "start worker and beat: `Procfile` has their commands")
    elif late:
        yield doubtful("tasks", f"{', '.join(late)} late", "look at the logs of worker and beat")
    else:
        yield well("tasks", f"{len(states)} scheduled, none late")

"""Scheduled work: the Celery app, and everything that happens by the clock, on one page.

Knows when. Must never know what a task does: each app's `tasks.py` says that. `celery --app gateway_project` finds this
module by its name; the package itself must not import it, or every process would.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.schedules import crontab
from celery.signals import beat_init

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway_project.settings")

app = Celery("gateway")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

# UTC. What is sent while no worker runs is dropped once the next of its kind is due.
app.conf.beat_schedule = {
    "make-partitions": {
        "task": "logs.make_partitions",
        "schedule": crontab(minute=5),
        "options": {"expires": 3600},
    },
    "expire-logs": {
        "task": "logs.expire",
        "schedule": crontab(hour=3, minute=20),
        "options": {"expires": 86_400},
    },
    "erase-organizations": {
        "task": "organizations.erase_deleted",
        "schedule": crontab(minute="*/5"),
        "options": {"expires": 300},
    },
    "sweep-idempotent-answers": {
        "task": "organizations.sweep_idempotent_answers",
        "schedule": crontab(minute=35),
        "options": {"expires": 3600},
    },
    "check-ledger": {
        "task": "billing.check_ledger",
        "schedule": crontab(hour=4, minute=10),
        "options": {"expires": 86_400},
    },
}


@beat_init.connect
def _begin(**_: Any) -> None:
    """Make the partitions at once: the schedule's next time may be an hour away."""
    app.send_task("logs.make_partitions", expires=3600)

"""Celery app and beat schedule: everything that happens by the clock, on one page.

Knows when. Must never know what a task does: each app's `tasks.py` says that. `celery --app gateway_project` finds this
module by its name; the package itself must not import it, or every process would.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from celery import Celery
from celery.schedules import crontab
from celery.signals import beat_init, worker_init

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway_project.settings")

app = Celery(
    "gateway",
    task_cls="gateway_project.task_metrics:Measured",
    # Celery finds the apps' own `tasks` modules; these are elsewhere. `apps.gateway.tasks` holds the kinds of requests,
    # none of Celery's tasks.
    include=["apps.gateway.settlement.tasks"],
)
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

# UTC. What is sent while no worker runs is dropped once the next of its kind is due.
app.conf.beat_schedule = {
    "make-partitions": {
        "task": "logs.make_partitions",
        "schedule": crontab(minute=5),
        "options": {"expires": 3600},
    },
    "roll-up-activity": {
        "task": "logs.roll_up",
        "schedule": crontab(),
        "options": {"expires": 60},
    },
    "roll-up-refusals": {
        "task": "logs.roll_up_refusals",
        "schedule": crontab(),
        "options": {"expires": 60},
    },
    "deliver-to-log-sinks": {
        "task": "log_sinks.deliver_due",
        "schedule": 10.0,
        "options": {"expires": 10},
    },
    "purge-log-sinks": {
        "task": "log_sinks.purge",
        "schedule": crontab(minute=45),
        "options": {"expires": 3600},
    },
    "blank-logs": {
        "task": "logs.blank",
        "schedule": crontab(minute="*/10"),
        "options": {"expires": 600},
    },
    "expire-logs": {
        "task": "logs.expire",
        "schedule": crontab(hour=3, minute=20),
        "options": {"expires": 86_400},
    },
    "move-logs": {
        "task": "logs.move",
        "schedule": crontab(hour=5, minute=20),
        "options": {"expires": 43_200},
    },
    "expire-violations": {
        "task": "guardrails.expire",
        "schedule": crontab(hour=3, minute=40),
        "options": {"expires": 86_400},
    },
    "erase-organizations": {
        "task": "organizations.erase_deleted",
        "schedule": crontab(minute="*/5"),
        "options": {"expires": 300},
    },
    "purge-responses": {
        "task": "responses.purge",
        "schedule": crontab(minute="*/10"),
        "options": {"expires": 600},
    },
    "bring-in-responses": {
        "task": "responses.bring_in",
        "schedule": crontab(),
        "options": {"expires": 60},
    },
    "work-on-batches": {
        "task": "batches.work",
        "schedule": 5.0,
        "options": {"expires": 5},
    },
    "purge-files-and-batches": {
        "task": "batches.purge",
        "schedule": crontab(minute="*/10"),
        "options": {"expires": 600},
    },
    "purge-codes-and-tokens": {
        "task": "oauth.purge",
        "schedule": crontab(minute=25),
        "options": {"expires": 3600},
    },
    "send-messages": {
        "task": "organizations.send_messages",
        "schedule": 15.0,
        "options": {"expires": 15},
    },
    "sweep-idempotent-answers": {
        "task": "organizations.sweep_idempotent_answers",
        "schedule": crontab(minute=35),
        "options": {"expires": 3600},
    },
    "top-up-automatically": {
        "task": "billing.top_up_automatically",
        "schedule": crontab(),
        "options": {"expires": 60},
    },
    "recover-payments": {
        "task": "billing.recover_payments",
        "schedule": crontab(),
        "options": {"expires": 60},
    },
    "tell-owners-of-log-sinks": {
        "task": "log_sinks.tell_owners",
        "schedule": crontab(),
        "options": {"expires": 60},
    },
    "tell-owners": {
        "task": "billing.tell_owners",
        "schedule": crontab(),
        "options": {"expires": 60},
    },
    "sync-subscriptions": {
        "task": "billing.sync_subscriptions",
        "schedule": crontab(minute="*/15"),
        "options": {"expires": 900},
    },
    "pay-referrers": {
        "task": "billing.pay_referrers",
        "schedule": crontab(hour=1, minute=40),
        "options": {"expires": 86_400},
    },
    "sweep-processor-events": {
        "task": "billing.sweep_processor_events",
        "schedule": crontab(hour=2, minute=50),
        "options": {"expires": 86_400},
    },
    "reconcile": {
        "task": "gateway.reconcile",
        "schedule": crontab(hour=4, minute=10),
        "options": {"expires": 86_400},
    },
}


@beat_init.connect
def _begin(**_: Any) -> None:
    """Make the partitions at once: the schedule's next time may be an hour away."""
    # Here and not above: it reaches for the settings.
    from gateway_project import task_metrics

    # What is sent is dropped when the next is due.
    task_metrics.plan({one["task"]: one["options"]["expires"] for one in app.conf.beat_schedule.values()})
    app.send_task("logs.make_partitions", expires=3600)


@worker_init.connect
def _begin_worker(**_: Any) -> None:
    """Have the route table put in force, for lines of batches are requests to its endpoints; and no longer count as
    under way what a worker that was killed had been answering."""
    from gateway_project import metric_files

    import_module("gateway_project.routes")
    metric_files.forget_dead_processes()

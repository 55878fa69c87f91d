"""The Celery app of workers, which run the tasks in each app's `tasks.py`.

`celery --app gateway_project` finds this module by its name; the package itself must not import it, or every process
would load Celery.
"""

from __future__ import annotations

import os
import warnings
from functools import partial
from importlib import import_module
from typing import Any

from celery import Celery
from celery.exceptions import SecurityWarning
from celery.signals import worker_init

from apps.kernel.rest.routes import load_when_asked
from gateway_project.schedule import BEAT_SCHEDULE

# It warns of root because of messages that would run code; ours are JSON, and no others are accepted.
warnings.filterwarnings("ignore", category=SecurityWarning)

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway_project.settings")
# Django's checks of the code would load every view and page, and Celery passes over what they find.
os.environ.setdefault("CELERY_SKIP_CHECKS", "true")


def _find_apps() -> list[str]:
    """Return the apps whose `tasks` are Celery's: in `apps.gateway.tasks` are the kinds of requests, and with them all
    dialects."""
    from django.apps import apps

    return [one.name for one in apps.get_app_configs() if one.name != "apps.gateway"]


app = Celery(
    "gateway",
    task_cls="gateway_project.observability.measured_task:Measured",
    # Celery finds the apps' own `tasks` modules; these are elsewhere.
    include=["apps.gateway.settlement.tasks"],
)
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(_find_apps)
app.conf.beat_schedule = BEAT_SCHEDULE


@worker_init.connect
def _begin_worker(**_: Any) -> None:
    """Say where the route table is, for lines of batches are requests to its endpoints; and no longer count as under
    way what a worker that was killed had been answering."""
    from gateway_project.observability import metric_files

    load_when_asked(partial(import_module, "gateway_project.routes"))
    metric_files.forget_dead_processes()

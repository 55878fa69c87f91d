"""The Celery app of beat (`gateway celery --app gateway_project.beat beat`), which sends the schedule's tasks.

It sends them by name, and loads neither Django's apps nor the tasks: that would take a second and 60 MB of memory.
`celery --app gateway_project beat` sends the same, and loads everything.
"""

from __future__ import annotations

import os

from celery import Celery

from gateway_project.schedule import BEAT_SCHEDULE

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway_project.settings")

# Without Celery's fix-up for Django, which loads all apps.
app = Celery("gateway", fixups=[])
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.beat_schedule = BEAT_SCHEDULE

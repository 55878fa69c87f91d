"""Beat at its start: what it sends at once; and while the broker is away, it says what it waits for, and goes on."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from kombu.exceptions import OperationalError
from structlog.testing import capture_logs

from gateway_project import celery, schedule
from gateway_project.configuration.data_directory import PROJECT


def test_beat_says_what_it_waits_for_without_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*names: str, **options: Any) -> None:
        raise OperationalError("Connection refused")

    monkeypatch.setattr(celery.app, "send_task", refuse)
    monkeypatch.setattr(celery.app.conf, "broker_url", "redis://:hidden-one@127.0.0.1:1/1")
    with capture_logs() as logs:
        schedule.begin(celery)
    assert [one for one in logs if one["event"] == "beat.waiting"] == [
        {
            "event": "beat.waiting",
            "log_level": "warning",
            "waits_for": "CELERY_BROKER_URL redis://127.0.0.1:1/1",
            "error": "OperationalError",
        }
    ]


def test_beat_sends_at_once_what_the_schedule_has_hours_later(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    monkeypatch.setattr(celery.app, "send_task", lambda name, **_: sent.append(name))
    schedule.begin(celery)
    assert sent == ["logs.make_partitions", "gateway.draw_balance_sheet"]


def test_the_app_of_beat_sends_the_whole_schedule_and_loads_no_app_of_django() -> None:
    program = (
        "from django.apps import apps\n"
        "from gateway_project.beat import app\n"
        "app.loader.init_worker(), app.finalize()\n"
        "print(len(app.conf.beat_schedule), apps.apps_ready, [name for name in app.tasks if name[:7] != 'celery.'])"
    )
    told = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert told.stdout.split(maxsplit=1) == [str(len(celery.app.conf.beat_schedule)), "False []\n"]

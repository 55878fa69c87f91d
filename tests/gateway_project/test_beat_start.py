"""Beat at its start while the broker is away: it says what it waits for, and goes on."""

from __future__ import annotations

from typing import Any

import pytest
from kombu.exceptions import OperationalError
from structlog.testing import capture_logs

from gateway_project import celery


def test_beat_says_what_it_waits_for_without_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*names: str, **options: Any) -> None:
        raise OperationalError("Connection refused")

    monkeypatch.setattr(celery.app, "send_task", refuse)
    monkeypatch.setattr(celery.app.conf, "broker_url", "redis://:hidden-one@127.0.0.1:1/1")
    with capture_logs() as logs:
        celery._begin()
    assert [one for one in logs if one["event"] == "beat.waiting"] == [
        {
            "event": "beat.waiting",
            "log_level": "warning",
            "waits_for": "CELERY_BROKER_URL redis://127.0.0.1:1/1",
            "error": "OperationalError",
        }
    ]

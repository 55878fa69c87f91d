"""Scheduled tasks, run by a real worker and beat."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.db import connection

from apps.logs import partitions
from gateway_project.configuration.data_directory import PROJECT
from tests.stack.product import eventually


@pytest.fixture
def worker_and_beat(transactional_db: None, tmp_path: Path) -> Iterator[None]:
    """The Procfile's worker and beat as processes of their own, on the tests' database, which has no partition yet."""
    partitions.drop_before(date.max)
    url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}").geturl()
    celery = [sys.executable, "-m", "gateway_project", "celery", "--app"]
    commands = [
        [*celery, "gateway_project", "worker", "--pool", "gevent", "--concurrency", "20", "--loglevel", "INFO"],
        [*celery, "gateway_project.beat", "beat", "--loglevel", "INFO", "--schedule", str(tmp_path / "schedule")],
    ]
    with (tmp_path / "log").open("wb") as log:
        processes = [
            subprocess.Popen(command, cwd=PROJECT, stdout=log, stderr=log, env={**os.environ, "DATABASE_URL": url})
            for command in commands
        ]
        try:
            yield
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(20)


@pytest.mark.stack
def test_a_worker_and_a_beat_make_the_partitions_as_soon_as_they_start(worker_and_beat: None, tmp_path: Path) -> None:
    wanted = partitions.upcoming(datetime.now(UTC))
    try:
        eventually(lambda: partitions.existing() == wanted, patience=100)
    except AssertionError:
        raise AssertionError((tmp_path / "log").read_text()) from None

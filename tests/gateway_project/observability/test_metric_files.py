"""Gauges of processes that were killed: removed by the next worker, those of the living kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway_project.observability import metric_files


def test_what_the_dead_had_under_way_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait(30)
    kept = [f"gauge_livesum_{os.getpid()}.db", f"counter_{dead.pid}.db", "gauge_livesum_x.db"]
    for name in (*kept, f"gauge_livesum_{dead.pid}.db", f"gauge_liveall_{dead.pid}.db"):
        (tmp_path / name).touch()
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    metric_files.forget_dead_processes()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


def test_without_a_folder_nothing_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where files of that name happen to lie."""
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait(30)
    left = tmp_path / f"gauge_livesum_{dead.pid}.db"
    left.touch()
    metric_files.forget_dead_processes()
    assert list(tmp_path.iterdir()) == [left]

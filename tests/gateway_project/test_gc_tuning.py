"""Garbage collection tuning: every process that reads the settings looks for cycles less often."""

from __future__ import annotations

import subprocess
import sys

from gateway_project.gc_tuning import THRESHOLD


def test_settings_set_how_often_cycles_are_looked_for() -> None:
    program = "import gc; usual = gc.get_threshold(); import gateway_project.settings; print(usual, gc.get_threshold())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    usual, tuned = (700, 10, 10), (THRESHOLD, 10, 10)
    assert done.stdout == f"{usual} {tuned}\n"

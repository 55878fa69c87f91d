"""Garbage collection tuning: every process that reads the settings looks for cycles less often."""

from __future__ import annotations

import subprocess
import sys

from gateway_project.processes.memory_tuning import THRESHOLD, WHOLE_LOOKS, YOUNG_LOOKS


def test_settings_set_how_often_cycles_are_looked_for() -> None:
    program = "import gc; usual = gc.get_threshold(); import gateway_project.settings; print(usual, gc.get_threshold())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    usual, tuned = (700, 10, 10), (THRESHOLD, YOUNG_LOOKS, WHOLE_LOOKS)
    assert done.stdout == f"{usual} {tuned}\n"


def test_the_looks_that_hold_everybody_up_are_short() -> None:
    """The number of objects in one look is bounded; all objects are looked through seldom."""
    assert THRESHOLD * (YOUNG_LOOKS + 1) <= 30_000
    assert THRESHOLD * (YOUNG_LOOKS + 1) * WHOLE_LOOKS >= 2_000_000

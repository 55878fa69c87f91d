"""Guardrails stay within their memory, whatever texts come: a soak in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Megabytes that the default rules may add to a process by then; `script/bench soak` tries more texts.
MAX_MEGABYTES = 60


def test_the_default_rules_stay_within_their_memory() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "bench.soak", "--texts", "5000"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    texts, megabytes = (float(word) for word in run.stdout.splitlines()[-1].split()[:2])
    assert texts == 5000
    assert megabytes <= MAX_MEGABYTES, run.stdout

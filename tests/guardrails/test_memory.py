"""Guardrails stay within their memory, whatever texts come: by the sum of limits, and in a soak with hostile texts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Megabytes that the default rules may add to a process; `script/bench soak` tries more texts.
MAX_MEGABYTES = 60
# Megabytes among them for the caches of characters and words, of 4,096 entries each.
_CACHES = 2


@pytest.fixture(scope="module")
def soak() -> list[str]:
    """Return the lines that a soak of 1,000 texts in a process of its own prints."""
    run = subprocess.run(
        [sys.executable, "-m", "bench.soak", "--texts", "1000"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def test_the_limits_of_all_automata_and_the_loaded_rules_add_up_to_less(soak: list[str]) -> None:
    automata, loaded = soak[0].split(), soak[1].split()
    assert automata[:4] == ["automata", "take", "at", "most"]
    assert loaded[0] == "0"
    assert float(automata[4]) > 20
    assert float(automata[4]) + float(loaded[1]) + _CACHES <= MAX_MEGABYTES, soak


def test_the_default_rules_stay_within_their_memory(soak: list[str]) -> None:
    texts, megabytes = (float(word) for word in soak[-1].split()[:2])
    assert texts == 1000
    assert megabytes <= MAX_MEGABYTES, soak

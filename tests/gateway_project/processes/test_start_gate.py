"""The start gate: a process waits until the server opens it, and ends when the server has ended instead."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable

import pytest

from gateway_project.configuration import data_directory
from gateway_project.processes.start_gate import START, StartGate, await_start

PROGRAM = """
from gateway_project.processes.start_gate import await_start
print('loaded', flush=True)
done = []
await_start(lambda: done.append('done'))
print(*done, 'on')
"""


def held(gate: StartGate) -> subprocess.Popen[str]:
    """Start a process that waits at the gate; return when it has come there."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **gate.variables},
        pass_fds=gate.descriptors,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=data_directory.PROJECT,
    )
    gate.started()
    assert process.stdout is not None
    assert process.stdout.readline() == "loaded\n"
    return process


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (StartGate.open, (0, "done on\n", "")),
        # The death of the server does the same.
        (StartGate.close, (1, "", "the server has ended during its set-up\n")),
    ],
    ids=["opened", "abandoned"],
)
def test_a_process_waits_for_the_gate(end: Callable[[StartGate], None], said: tuple[int, str, str]) -> None:
    gate = StartGate()
    process = held(gate)
    select.select([gate._own], [], [], 60)
    assert gate.is_reached
    assert process.poll() is None
    end(gate)
    words, errors = process.communicate(timeout=110)
    assert (process.returncode, words, errors) == said


def test_a_process_that_has_ended_needs_no_gate() -> None:
    gate = StartGate()
    process = held(gate)
    process.kill()
    process.communicate(timeout=110)
    gate.open()


def test_without_a_gate_there_is_nothing_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(START, raising=False)
    await_start()

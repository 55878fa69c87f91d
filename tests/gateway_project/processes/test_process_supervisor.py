"""Watched processes: their output when it cannot be written down."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gateway_project.processes.process_supervisor import ProcessSpec, SupervisedProcess, forward_output


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_log_that_cannot_be_written_ends_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "web.log"
    log.symlink_to("/dev/full")
    said: list[str] = []

    def start(output: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", "for n in range(500): print('line', n)"], stdout=output)

    child = SupervisedProcess(ProcessSpec("web", start), log, said.append)
    child.start()
    while child.talking:
        forward_output([child], 5)
    assert said == [f"line {number}" for number in range(500)]
    assert child.last_lines[-1] == "line 499"
    assert capfd.readouterr().err == f"{log} cannot be written ([Errno 28] No space left on device); lines are lost\n"
    child.reap()

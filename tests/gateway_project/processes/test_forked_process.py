"""Forked processes: what a fork of the loaded web process has in common with a program of its own."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gateway_project.configuration import data_directory
from gateway_project.processes.forked_process import ForkedProcess, python_arguments
from gateway_project.processes.start_gate import StartGate
from tests.stack.product import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has adoption")

LOADED = """
import sys
from gateway_project.processes.start_gate import await_start
await_start(lambda: print('meanwhile', flush=True), load_for_forks=lambda: setattr(sys, 'loaded_for_forks', True))
print('went on', flush=True)
"""
FACTS = """
import json, os, sys
from pathlib import Path
print(json.dumps({
    "name": __name__,
    "arguments": sys.argv,
    "loaded": hasattr(sys, "loaded_for_forks"),
    "parent": os.getppid(),
    "leads its session": os.getsid(0) == os.getpid(),
    "policy": os.sched_getscheduler(0),
    "command line": Path("/proc/self/cmdline").read_bytes().rstrip(bytes(1)).decode().split(chr(0)),
    "alone": os.environ.get("ALONE"),
    "kept": os.environ.get("KEPT"),
    "descriptors": len(os.listdir("/proc/self/fd")),
}))
sys.stderr.write("an error\\n")
"""


class Web:
    """A process that waits at a gate, and forks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gate = StartGate()
        reading, self._alone = os.pipe()
        os.close(reading)
        self.process = subprocess.Popen(
            # Long, so that the forks' command lines have room.
            [sys.executable, "-c", LOADED + "#" * 500],
            env={**os.environ, **self.gate.variables, "ALONE": str(self._alone), "KEPT": "kept"},
            pass_fds=(*self.gate.descriptors, self._alone),
            stdout=subprocess.PIPE,
            text=True,
            cwd=data_directory.PROJECT,
        )
        self.gate.started()
        select.select([self.gate._own], [], [], 60)
        assert self.gate.is_reached

    def fork(self, program: str, *arguments: str, background: bool = False) -> tuple[ForkedProcess, int]:
        """Fork a program; return its process, and the descriptor of what it writes."""
        file = self.folder / "program.py"
        file.write_text(program)
        reading, writing = os.pipe()
        process = self.gate.fork([str(file), *arguments], writing, background=background, without=["ALONE"])
        os.close(writing)
        return process, reading

    def run(self, program: str, *arguments: str, background: bool = False) -> tuple[int | None, str]:
        """Return the exit code of a fork, and what it wrote."""
        process, reading = self.fork(program, *arguments, background=background)
        with os.fdopen(reading) as output:
            written = output.read()
        return process.wait(), written

    def end(self) -> None:
        """End it, if it still runs."""
        with suppress(OSError):
            os.close(self._alone)
        self.process.kill()
        self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()
        self.gate.close()


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    """A process that has loaded, and waits at its gate."""
    one = Web(tmp_path)
    yield one
    one.end()


def test_a_fork_is_like_a_program_that_the_server_has_started(web: Web) -> None:
    code, written = web.run(FACTS, "--port", "8001")
    facts: dict[str, Any] = json.loads(written.splitlines()[0])
    file = str(web.folder / "program.py")
    assert (code, written.splitlines()[1:]) == (0, ["an error"])
    descriptors = facts.pop("descriptors")
    assert facts == {
        "name": "__main__",
        "arguments": [file, "--port", "8001"],
        "loaded": True,
        "parent": os.getpid(),
        "leads its session": True,
        "policy": os.SCHED_OTHER,
        "command line": ["python", file, "--port", "8001"],
        "alone": None,
        "kept": "kept",
    }
    # The three of every process, gevent's loop, and the one that lists them.
    assert descriptors <= 6


def test_forks_come_one_after_the_other_and_the_process_goes_on_after_them(web: Web) -> None:
    assert web.run("print('first')") == (0, "first\n")
    assert web.run("print('second')") == (0, "second\n")
    web.gate.open()
    words, _ = web.process.communicate(timeout=110)
    assert (web.process.returncode, words) == (0, "meanwhile\nwent on\n")


def test_a_fork_in_the_background_yields(web: Web) -> None:
    _, written = web.run(FACTS, background=True)
    assert json.loads(written.splitlines()[0])["policy"] == os.SCHED_BATCH


@pytest.mark.parametrize(
    ("program", "code", "last"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit()", 0, ""),
        ("import sys; sys.exit('no such home')", 1, "no such home"),
        ("raise ValueError('wrong')", 1, "ValueError: wrong"),
        ("import atexit; atexit.register(print, 'at the end')", 0, "at the end"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, ""),
    ],
    ids=["code", "none", "words", "exception", "at exit", "signal"],
)
def test_a_fork_ends_as_a_program_does(web: Web, program: str, code: int, last: str) -> None:
    ended, written = web.run(program)
    assert (ended, (written.splitlines() or [""])[-1]) == (code, last)
    assert web.process.poll() is None


def test_a_module_is_run_by_its_name(web: Web) -> None:
    reading, writing = os.pipe()
    process = web.gate.fork(["-m", "json.tool", "--help"], writing, background=False, without=[])
    os.close(writing)
    with os.fdopen(reading) as output:
        assert output.readline().startswith("usage: ")
        output.read()
    assert process.wait() == 0


def test_a_fork_outlives_the_process_that_forked_it_and_takes_signals(web: Web) -> None:
    process, reading = web.fork("import time; print('up', flush=True); time.sleep(100)")
    os.read(reading, 10)
    web.process.kill()
    web.process.wait()
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    assert (process.wait(), process.poll()) == (-signal.SIGKILL, -signal.SIGKILL)
    process.send_signal(signal.SIGKILL)  # Its number may be another process's by now.
    os.close(reading)


def test_a_fork_ends_with_the_server(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path\n"
        "from tests.gateway_project.processes.test_forked_process import Web\n"
        "process, _ = Web(Path(sys.argv[1])).fork('import time; time.sleep(100)')\n"
        "print(process.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path],
        cwd=data_directory.PROJECT,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    fork = int(done.stdout.split()[-1])
    eventually(lambda: _is_gone(fork))


def _is_gone(pid: int) -> bool:
    try:
        # Where nothing reaps orphans it stays, as a zombie.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_process_that_has_ended_forks_nothing(web: Web) -> None:
    web.process.kill()
    web.process.wait()
    with pytest.raises(OSError, match=r"the web process has ended|Broken pipe"):
        web.fork("print('never')")


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("python manage.py settler", ["manage.py", "settler"]),
        ('python -m apps.beat --file "$HOME_OF_IT/a b"', ["-m", "apps.beat", "--file", "/tmp/it/a b"]),
        ("python -c 'print()'", None),
        ("python", None),
        ("gunicorn application", None),
    ],
)
def test_commands_that_a_fork_can_run(command: str, arguments: list[str] | None) -> None:
    assert python_arguments(command, {"HOME_OF_IT": "/tmp/it"}) == arguments

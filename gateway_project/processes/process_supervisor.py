"""Process supervisor: starts, restarts, logs and stops child processes."""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Protocol

# Bytes of a log file before it becomes `<name>.log.1`, and of a line before it is cut.
_LOG_SIZE, _LINE_SIZE = 16 * 1024 * 1024, 64 * 1024
# Seconds before a child that ended is started again: at first, at most, and the life after which it is "at first".
_FIRST_DELAY, _LAST_DELAY, _HEALTHY_LIFE = 0.2, 5.0, 30.0


class ChildProcess(Protocol):
    """A running child: a `subprocess.Popen`, or a `ForkedProcess`."""

    pid: int

    def poll(self) -> int | None:
        """Return the exit code, minus the signal's number if one ended it; None while it runs."""

    def wait(self) -> int | None:
        """Wait for its end; return the exit code."""

    def send_signal(self, kind: int, /) -> None:
        """Send it a signal, if it runs."""


@dataclass(frozen=True)
class ProcessSpec:
    """Settings of a child process: how it is started and stopped."""

    name: str
    # Starts the process with its output on the given descriptor; may raise OSError.
    start: Callable[[int], ChildProcess]
    stop_signal: signal.Signals = signal.SIGTERM
    force_signal: signal.Signals = signal.SIGKILL
    # Seconds between the two.
    patience: float = 35.0
    # Before it is started again the first time.
    first_delay: float = _FIRST_DELAY


class _Log(RotatingFileHandler):
    """A log file that never fails: lines that cannot be written are dropped, which is reported once."""

    _failing = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's word for it
        """Print once to the terminal that writing fails, instead of a traceback for every line."""
        if not self._failing:
            self._failing = True
            with suppress(OSError):
                os.write(2, f"{self.baseFilename} cannot be written ({sys.exc_info()[1]}); lines are lost\n".encode())

    def flush(self) -> None:
        """Write the gathered lines; after a success, the next failure is reported again."""
        super().flush()
        self._failing = False


class SupervisedProcess:
    """A role's process, and the next one when that has ended."""

    def __init__(self, role: ProcessSpec, log: Path, show: Callable[[str], None] | None = None) -> None:
        """Write the output of the process to a new `log` of limited size, and pass it to `show` line by line."""
        self.spec = role
        self.last_lines: deque[str] = deque(maxlen=20)
        self._show = show
        self._log = _Log(log, maxBytes=_LOG_SIZE, backupCount=1, encoding="utf-8")
        if log.stat().st_size:
            self._log.doRollover()
        self._process: ChildProcess | None = None
        self._pipe: int | None = None
        self._rest = b""
        self._delay = role.first_delay
        self._started = 0.0
        # When to start again; None while it runs.
        self._due: float | None = None

    def start(self) -> None:
        """Start the process. Raises OSError."""
        self._pipe, writing_end = os.pipe()
        os.set_blocking(self._pipe, False)
        self._started, self._due = time.monotonic(), None
        try:
            self._process = self.spec.start(writing_end)
        finally:
            os.close(writing_end)

    @property
    def alive(self) -> bool:
        """Is the process running?"""
        return self._process is not None and self._process.poll() is None

    @property
    def end(self) -> str:
        """How the process ended, in words."""
        code = self._process.poll() if self._process else None
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"

    @property
    def pid(self) -> int | None:
        """The process's number, None before its start."""
        return self._process.pid if self._process else None

    def send(self, kind: signal.Signals) -> None:
        """Send the process a signal, if it runs."""
        if self._process is not None and self.alive:
            self._process.send_signal(kind)

    def restart_if_ended(self, tell: Callable[[str], None]) -> None:
        """Start the process again when it has ended, later each time as long as it keeps ending early."""
        if self.alive:
            return
        now = time.monotonic()
        if self._due is None:
            self.reap()
            if now - self._started > _HEALTHY_LIFE:
                self._delay = self.spec.first_delay
            when = f"in {self._delay:.1f} s" if self._delay else "at once"
            tell(f"{self.spec.name} ended ({self.end}); starting it again {when}")
            self._due, self._delay = now + self._delay, min(max(self._delay * 2, _FIRST_DELAY), _LAST_DELAY)
        if now >= self._due:
            try:
                self.start()
            except OSError as error:
                self._due = now + self._delay
                tell(f"{self.spec.name} cannot be started: {error}")

    def reap(self) -> None:
        """Take the ended process's last words, and end what it left of its group."""
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        while self.read():
            pass
        self._close()

    def discard(self) -> None:
        """Kill the process; what it said is in its log alone."""
        self._show = None
        if self._process is not None:
            self.send(signal.SIGKILL)
            self._process.wait()

    def forget(self) -> None:
        """Let go of an ended process for good, its log included."""
        self.reap()
        self._log.close()

    def read(self) -> bool:
        """Pass on what has been said since; tell whether that was anything."""
        if self._pipe is None:
            return False
        try:
            chunk = os.read(self._pipe, _LINE_SIZE)
        except BlockingIOError:
            return False
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if self._rest and (not chunk or len(self._rest) > _LINE_SIZE):
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._pass_on(line.decode(errors="replace").rstrip())
        if not chunk:
            self._close()
        return bool(chunk)

    @property
    def talking(self) -> bool:
        """May more be said?"""
        return self._pipe is not None

    def fileno(self) -> int:
        """Return the descriptor to wait on for more; only while `talking`."""
        return -1 if self._pipe is None else self._pipe

    def _pass_on(self, line: str) -> None:
        self.last_lines.append(line)
        self._log.handle(logging.makeLogRecord({"msg": line}))
        if self._show:
            self._show(line)

    def _close(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None


def forward_output(children: Iterable[SupervisedProcess], seconds: float) -> None:
    """Pass on what the children say, waiting up to so many seconds for the first of them to speak."""
    for child in select.select([child for child in children if child.talking], [], [], seconds)[0]:
        child.read()


def stop_processes(
    children: Sequence[SupervisedProcess], everyone: Sequence[SupervisedProcess], forced: Callable[[], bool]
) -> None:
    """Stop the children together, each within its patience, at once when `forced` says so; listen to everyone."""
    asked = time.monotonic()
    for child in children:
        child.send(child.spec.stop_signal)
    while waiting := [child for child in children if child.alive]:
        for child in waiting:
            if forced() or time.monotonic() - asked > child.spec.patience:
                child.send(child.spec.force_signal)
        forward_output(everyone, 0.05)
    for child in children:
        child.reap()

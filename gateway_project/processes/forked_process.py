"""Forked process: a role of the server that begins as a fork of the loaded web process, whose memory it shares.

The application takes some 130 MB of a process. The web process loads it before its workers are forked, and forks the
settler, the Celery worker, beat and the sandbox as well, each of which then takes 9 to 33 MB of its own. The server
adopts these forks and supervises them like any child. One that has ended is started again as a new program, which
shares nothing. Linux only: elsewhere every role is a program from the start. Does not import Django.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import runpy
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from string import Template
from typing import NoReturn

from gateway_project.embedded.child_process import leash, lower_scheduling_priority

_PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 15, 36
# Modules that the roles load beyond those of the web process. A fork that loaded them itself would have a copy of each,
# and of the pages that importing writes to.
_SHARED_MODULES = (
    "apps.gateway.management.commands.settler",
    "apps.sandbox.routes",
    "apps.sandbox.server",
    "celery.apps.beat",
    "celery.apps.worker",
    "celery.concurrency.gevent",
    "celery.events.receiver",
    "celery.worker.consumer",
    "django_redis.cache",
    "django_redis.client",
    "django_redis.compressors.identity",
    "django_redis.serializers.pickle",
    "gateway_project.celery_program",
    "gateway_project.observability.measured_task",
    "kombu.transport.redis",
)


def load_shared_modules() -> None:
    """Load what the roles need, in a process whose forks they will be."""
    for name in _SHARED_MODULES:
        import_module(name)
    app = import_module("gateway_project.celery").app
    app.loader.import_default_modules()
    app.finalize()


def python_arguments(command: str, variables: Mapping[str, str]) -> list[str] | None:
    """Return the arguments of a command line that runs a module or a file with Python; None for any other."""
    words = [Template(word).safe_substitute(variables) for word in shlex.split(command)]
    is_python = len(words) > 1 and words[0] == "python" and (words[1] == "-m" or not words[1].startswith("-"))
    return words[1:] if is_python else None


class ForkedProcess:
    """A child of this process that another process has forked, with the methods of a `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, minus the signal's number if one ended it; None while it runs."""
        return self._look(os.WNOHANG)

    def wait(self) -> int | None:
        """Wait for its end; return the exit code."""
        return self._look(0)

    def send_signal(self, kind: int, /) -> None:
        """Send it a signal, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, kind)

    def _look(self, options: int) -> int | None:
        if self._code is None:
            ended, status = os.waitpid(self.pid, options)
            if ended:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code


@contextmanager
def adopting_orphans() -> Iterator[None]:
    """Make this process the parent of those that its descendants leave behind during the block. Linux only."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        _prctl(_PR_SET_CHILD_SUBREAPER, 0)


def run_in_fork(
    arguments: Sequence[str], server: int, output: int, *, background: bool, begin: Callable[[int], object]
) -> None:
    """Run Python with these arguments in a fork of this process, as a child of the process `server`, which adopts it.

    The fork writes to `output`; `begin` gets its number, in it, once it is the server's. This process must have no
    other threads. It waits until the fork is an orphan, and goes on.
    """
    from gevent.monkey import get_original
    from gevent.os import fork_gevent

    sys.stdout.flush()
    sys.stderr.flush()
    between = fork_gevent()
    if between:
        get_original("os", "waitpid")(between, 0)
        return
    between = os.getpid()
    if fork_gevent():
        os._exit(0)
    try:
        _become_child_of(server, between, output)
        _show_command_line(["python", *arguments])
        begin(os.getpid())
        if background:
            lower_scheduling_priority()
        code = _run_python(arguments)
    except BaseException:  # noqa: BLE001 - a traceback, as of a program, and never back to the web process
        sys.excepthook(*sys.exc_info())
        code = 1
    _exit(code)


def _become_child_of(server: int, between: int, output: int) -> None:
    """Do what `spawn` does with a new program: a session and outputs of its own, and an end with the server's end."""
    os.setsid()
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.close(output)
    while os.getppid() == between:
        time.sleep(0.001)
    leash(server, signal.SIGKILL)


def _run_python(arguments: Sequence[str]) -> int:
    """Run a module or a file as the interpreter does; return the exit code."""
    try:
        if arguments[0] == "-m":
            sys.argv = list(arguments[1:])
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(arguments)
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, int):
            return end.code
        if end.code is not None:
            sys.stderr.write(f"{end.code}\n")
            return 1
    return 0


def _exit(code: int) -> NoReturn:
    """End this process, and not go back to where it was forked."""
    with suppress(Exception):
        atexit._run_exitfuncs()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _show_command_line(words: Sequence[str]) -> None:
    """Let `ps` show these words, as far as they fit where the present command line is."""
    _prctl(_PR_SET_NAME, ctypes.c_char_p(os.fsencode(words[0])))
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    # Some sandboxes of containers tell no addresses.
    if 0 < start < end:
        shown = b"\0".join(map(os.fsencode, words))[: end - start - 1]
        ctypes.memmove(start, shown.ljust(end - start, b"\0"), end - start)


def _prctl(option: int, value: int | ctypes.c_char_p) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)

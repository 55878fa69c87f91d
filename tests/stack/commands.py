"""Management commands of a running product, each in a process forked from one that has loaded Django.

A process of its own would load Django first, which takes two seconds of a processor: longer than most commands.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

_PROJECT = Path(__file__).resolve().parents[2]
# Bytes of a command and its arguments, a script of `shell -c` among them.
_MAX_COMMAND = 100_000


class Commands:
    """The process that has loaded Django, of which every command is a copy. Any thread may run commands."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment` has to name the stores, or a home whose stores run."""
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=_PROJECT,
                env=dict(environment),
                pass_fds=[theirs.fileno()],
            )

    def run(self, *arguments: str, patience: float) -> subprocess.CompletedProcess[str]:
        """Run a command as `manage.py` does. Raises TimeoutError when it has not ended after `patience` seconds."""
        with TemporaryFile("w+") as output, TemporaryFile("w+") as errors:
            ended, theirs = socket.socketpair()
            with ended:
                with theirs:
                    files: list[Any] = [output, errors, theirs]
                    socket.send_fds(self._control, [json.dumps(arguments).encode()], [one.fileno() for one in files])
                ended.settimeout(patience)
                # Without a code the command was killed.
                code = int(ended.recv(10) or -signal.SIGKILL)
            said = []
            for file in (output, errors):
                file.seek(0)
                said.append(file.read())
        return subprocess.CompletedProcess(arguments, code, *said)

    def close(self) -> None:
        """End the process."""
        self._control.close()
        self._process.wait(60)


def _serve(control: socket.socket) -> None:
    """Run each command that arrives, with files for its output, errors and exit code, until the other end is closed."""
    import django

    os.environ["DJANGO_SETTINGS_MODULE"] = "gateway_project.settings"
    django.setup()
    # Commands that have ended leave nothing behind.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        command, files, *_ = socket.recv_fds(control, _MAX_COMMAND, 3)
        if not command:
            return
        arguments = json.loads(command)
        if arguments[0] != "shell":
            # The checks before such a command load all pages, which takes longer than Django itself.
            import_module("gateway_project.urls")
        if os.fork() == 0:
            control.close()
            output, errors, ended = files
            os.dup2(output, 1)
            os.dup2(errors, 2)
            os.write(ended, str(_run(arguments)).encode())
            os._exit(0)
        for file in files:
            os.close(file)


def _run(arguments: Sequence[str]) -> int:
    from gateway_project.__main__ import manage

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        code: Any = manage(arguments)
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - as the interpreter does at the end of a program
        traceback.print_exc()
        code = 1
    if not isinstance(code, int | None):
        sys.stderr.write(f"{code}\n")
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code or 0


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as one_end:
        # Where gevent made it, it does not block.
        one_end.setblocking(True)
        _serve(one_end)

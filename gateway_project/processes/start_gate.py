"""Start gate: holds a process that has been started early until the server's set-up has come to its turn.

The server starts processes that take long to load while the stores start and the database is prepared. Such a process
loads, then reports that and waits (`await_start`) for the server to open the gate. The one that has loaded all that
others need forks these meanwhile (`StartGate.fork`). Does not import Django.
"""

from __future__ import annotations

import _socket
import gc
import json
import os
import socket
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from gateway_project.processes.forked_process import ForkedProcess, adopting_orphans, run_in_fork

# The environment variable that names the descriptor to wait on; absent in processes that need not wait.
START = "GATEWAY_START_FD"
# The process says that it has loaded, and whether it forks; the server that it may go on, or, as JSON, what to fork.
_LOADED, _FORKS, _OPEN = b"l", b"f", b"o"
# Bytes of a request to fork, and seconds for it.
_MAX_REQUEST, _FORK_PATIENCE = 65_536, 30.0


class StartGate:
    """The server's end of the gate of one process."""

    def __init__(self) -> None:
        self._own, self._inherited = socket.socketpair()
        self._own.setblocking(False)
        self._said = b""

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that the process inherits."""
        return (self._inherited.fileno(),)

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that name them."""
        return {START: str(self._inherited.fileno())}

    def started(self) -> None:
        """Close the end of the process, which has it now."""
        self._inherited.close()

    @property
    def is_reached(self) -> bool:
        """Whether the process has loaded, and waits."""
        with suppress(OSError):
            self._said = self._said or self._own.recv(1)
        return self._said in (_LOADED, _FORKS)

    @property
    def forks(self) -> bool:
        """Whether the process that waits forks others."""
        return self._said == _FORKS

    def fork(
        self, arguments: Sequence[str], output: int, *, background: bool, without: Collection[str]
    ) -> ForkedProcess:
        """Have the process fork one that runs Python with these arguments, and is a child of this process's.

        The fork closes the descriptors that the environment variables `without` name, which are the process's alone.

        Raises OSError.
        """
        wanted = {
            "arguments": list(arguments),
            "server": os.getpid(),
            "background": background,
            "without": list(without),
        }
        self._own.settimeout(_FORK_PATIENCE)
        with adopting_orphans():
            socket.send_fds(self._own, [json.dumps(wanted).encode()], [output])
            pid = self._own.recv(32)
        self._own.setblocking(False)
        if not pid:
            raise ConnectionResetError("the web process has ended")
        return ForkedProcess(int(pid))

    def open(self) -> None:
        """Let the process go on; one that has ended needs nothing. Call it once."""
        with suppress(OSError):
            self._own.send(_OPEN)
        self.close()

    def close(self) -> None:
        """End the process when it comes to the gate."""
        self._own.close()


def await_start(
    meanwhile: Callable[[], object] | None = None, *, load_for_forks: Callable[[], object] | None = None
) -> None:
    """Report that this process has loaded, do what there is to do `meanwhile`, and wait until its gate is open.

    A process that can `load_for_forks` does so as well, and then forks others until the gate is open. Without a gate it
    only does what there is to do meanwhile, and waits for nothing.

    Raises SystemExit when the server has ended before it opened the gate.
    """
    descriptor = os.environ.pop(START, None)
    if descriptor is None:
        if meanwhile is not None:
            meanwhile()
        return
    # Not Python's socket: in a web process that is gevent's, and nothing else may run before workers are forked.
    gate = _socket.socket(fileno=int(descriptor))
    forks = load_for_forks if sys.platform == "linux" else None
    try:
        if forks is not None:
            forks()
        with suppress(OSError):  # The gate is open already, or the server has ended.
            gate.send(_FORKS if forks else _LOADED)
        if meanwhile is not None:
            meanwhile()
        if forks is not None:
            # As in `gunicorn.when_ready`.
            gc.collect()
            gc.freeze()
        said, descriptors, _, _ = socket.recv_fds(gate, _MAX_REQUEST, 1)  # type: ignore[arg-type] # it calls `recvmsg`
        while descriptors:
            _fork(said, descriptors[0], gate)
            said, descriptors, _, _ = socket.recv_fds(gate, _MAX_REQUEST, 1)  # type: ignore[arg-type] # as above
        if said != _OPEN:
            raise SystemExit("the server has ended during its set-up")
    finally:
        gate.close()


def _fork(said: bytes, output: int, gate: _socket.socket) -> None:
    wanted = json.loads(said)

    def begin(pid: int) -> None:
        gate.send(b"%d" % pid)
        gate.close()
        for name in wanted["without"]:
            os.close(int(os.environ.pop(name)))

    run_in_fork(wanted["arguments"], wanted["server"], output, background=wanted["background"], begin=begin)
    os.close(output)

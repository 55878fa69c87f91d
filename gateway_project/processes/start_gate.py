"""Start gate: holds a process that has been started early until the server's set-up has come to its turn.

The server starts processes that take long to load while the stores start and the database is prepared. Such a process
loads, then reports that and waits (`await_start`) for the server to open the gate. Does not import Django.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress

# The environment variable that names the descriptor to wait on; absent in processes that need not wait.
START = "GATEWAY_START_FD"
_LOADED, _OPEN = b"l", b"o"


class StartGate:
    """The server's end of the gate of one process."""

    def __init__(self) -> None:
        self._own, self._inherited = socket.socketpair()
        self._own.setblocking(False)
        self._is_reached = False

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
            self._is_reached = self._is_reached or self._own.recv(1) == _LOADED
        return self._is_reached

    def open(self) -> None:
        """Let the process go on; one that has ended needs nothing. Call it once."""
        with suppress(OSError):
            self._own.send(_OPEN)
        self.close()

    def close(self) -> None:
        """End the process when it comes to the gate."""
        self._own.close()


def await_start(meanwhile: Callable[[], object] | None = None) -> None:
    """Report that this process has loaded, do what there is to do `meanwhile`, and wait until its gate is open.

    Without a gate it only does that, and waits for nothing.

    Raises SystemExit when the server has ended before it opened the gate.
    """
    descriptor = os.environ.pop(START, None)
    if descriptor is None:
        if meanwhile is not None:
            meanwhile()
        return
    # Not a socket of Python's: in a web process those are gevent's, and nothing else may run before workers are forked.
    gate = int(descriptor)
    try:
        with suppress(OSError):  # The gate is open already, or the server has ended.
            os.write(gate, _LOADED)
        if meanwhile is not None:
            meanwhile()
        if os.read(gate, 1) != _OPEN:
            raise SystemExit("the server has ended during its set-up")
    finally:
        os.close(gate)

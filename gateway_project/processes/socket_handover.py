"""Socket handover: the listening socket goes from one web process to the next without a refused connection.

The supervisor holds the socket and gives it to each web process that it starts (`Listener`), hears when all workers of
one serve, and tells one that is replaced to finish what it has begun (`Handover`). A web process reads both from its
environment; started by itself, without a supervisor, it finds nothing there and binds a socket of its own.
"""

from __future__ import annotations

import errno
import os
import socket
import tempfile
import time
from contextlib import suppress

# As it is before gevent replaces it: a look at a pipe must not switch to another greenlet.
from select import poll

from gateway_project.configuration.server_config import ServerConfig, StartError

# Connections that wait to be accepted; the kernel takes no more than its own limit.
BACKLOG = 4096
# Seconds for the answers under way when everything stops.
STOP_TIMEOUT = 30
LISTEN, READY, DRAIN = "GATEWAY_LISTEN_FD", "GATEWAY_READY_FD", "GATEWAY_DRAIN_FD"
# Seconds for a port that a server just killed still holds.
_PORT_PATIENCE = 3.0
_DRAINING = b"d"


class Listener:
    """The socket that clients connect to, for as long as the supervisor lives."""

    def __init__(self, config: ServerConfig) -> None:
        """Listen: who connects waits until a web process accepts.

        Raises StartError when another process keeps the port, or the address cannot be used.
        """
        deadline = time.monotonic() + _PORT_PATIENCE
        while (bound := _bind(config)) is None:
            if time.monotonic() > deadline:
                raise StartError(f"port {config.port} on {config.host} is taken: set PORT to another one")
            time.sleep(0.1)
        self._socket = bound

    def close(self) -> None:
        """Take no more connections."""
        self._socket.close()

    def fileno(self) -> int:
        """Return its descriptor."""
        return self._socket.fileno()


class Handover:
    """The pipes between the supervisor and one web process."""

    def __init__(self, listener: Listener) -> None:
        self._hearing, self._telling = os.pipe()
        os.set_blocking(self._hearing, False)
        os.set_blocking(self._telling, False)
        self._flag = _memory_file()
        self._listener = listener
        self._heard = b""

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that the web process inherits."""
        return self._listener.fileno(), self._telling, self._flag

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that name them."""
        return {LISTEN: str(self._listener.fileno()), READY: str(self._telling), DRAIN: str(self._flag)}

    def started(self) -> None:
        """Let go of what is the web process's only."""
        os.close(self._telling)

    @property
    def ready(self) -> bool:
        """Do all of its workers serve? Each has said how many they are."""
        with suppress(BlockingIOError):
            self._heard += os.read(self._hearing, 4096)
        said = self._heard.split()
        return bool(said) and len(said) >= int(said[-1])

    def drain(self, *, patiently: bool) -> None:
        """Tell how long it may take to finish once it has been asked to stop: as long as answers do, or not."""
        os.pwrite(self._flag, _DRAINING if patiently else b"-", 0)

    def close(self) -> None:
        """Let go of the rest."""
        os.close(self._hearing)
        os.close(self._flag)


def report_ready(workers: int) -> None:
    """In a worker: say that it serves, and how many there are to be."""
    if descriptor := os.environ.get(READY):
        with suppress(OSError, ValueError):
            os.write(int(descriptor), b"%d\n" % workers)


def is_draining() -> bool:
    """In a worker that stops: has another process taken its config, so that it may take its time?

    Not when the supervisor is gone: then the stores may be, too.
    """
    flag, descriptor = os.environ.get(DRAIN), os.environ.get(READY)
    if not flag or not descriptor:
        return False
    try:
        # The end that hears is closed when the supervisor has ended.
        hearing = poll()
        hearing.register(int(descriptor), 0)
        return os.pread(int(flag), 1, 0) == _DRAINING and not hearing.poll(0)
    except (OSError, ValueError):
        return False


def _memory_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("gateway-drain")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _bind(config: ServerConfig) -> socket.socket | None:
    """Return a socket that listens there, None when another process has the config. Raises StartError."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind)
    except OSError as error:
        raise _unusable(config, error) from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise _unusable(config, error) from error
    return bound


def _unusable(config: ServerConfig, error: OSError) -> StartError:
    return StartError(f"GATEWAY_HOST {config.host} and PORT {config.port} cannot be listened on: {error}")

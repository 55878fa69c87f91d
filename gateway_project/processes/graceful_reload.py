"""Graceful reload: a new web process takes over the listening socket, without a refused connection, while the old one
finishes its answers.

The supervisor holds the socket and gives it to each web process that it starts (`Listener`), hears when all workers of
one serve, and tells one that is replaced to finish what it has begun (`Handover`). A web process reads both from its
environment; started by itself, without a supervisor, it finds nothing there and binds a socket of its own.
"""
# As it is before gevent replaces it: a look at a pipe must not switch to another greenlet.

from __future__ import annotations

import errno
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from select import poll

from gateway_project.configuration import data_directory
from gateway_project.configuration.server_config import ServerConfig, StartError
from gateway_project.processes.process_supervisor import SupervisedProcess

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


# Seconds for the next process to serve; the one that serves goes on meanwhile, and after it if the next one does not.
_READY_PATIENCE = 120.0


class WebProcess:
    """One web process, and what it and the supervisor tell each other; both are new each time that it starts."""

    def __init__(self, make: Callable[[WebProcess], SupervisedProcess]) -> None:
        self.handover: Handover | None = None
        self.child = make(self)

    @property
    def ready(self) -> bool:
        """Do all of its workers serve?"""
        return self.handover is not None and self.handover.ready

    def renew(self, handover: Handover) -> Handover:
        """Take the handover of a process that is about to start."""
        if self.handover is not None:
            self.handover.close()
        self.handover = handover
        return handover

    def drain(self) -> None:
        """Ask it to finish what it has begun, however long that takes, and end."""
        if self.handover is not None:
            self.handover.drain(patiently=True)
        self.child.send(self.child.spec.stop_signal)

    def cut_drain_short(self) -> None:
        """Take that time back."""
        if self.handover is not None:
            self.handover.drain(patiently=False)

    def discard(self) -> None:
        """Kill it before it serves, and let go of it; it is not heard any more."""
        self.child.discard()
        self.forget()

    def forget(self) -> None:
        """Let go of it once it has ended."""
        self.child.forget()
        if self.handover is not None:
            self.handover.close()
            self.handover = None


class WebProcesses:
    """All web processes of a server: the one that serves, the one that will, and those that only finish."""

    def __init__(self, make: Callable[[WebProcess], SupervisedProcess], tell: Callable[[str], None]) -> None:
        self._make = make
        self._tell = tell
        self.serving = WebProcess(make)
        self._next: WebProcess | None = None
        self._deadline = 0.0
        self._leaving: list[WebProcess] = []

    @property
    def others(self) -> list[SupervisedProcess]:
        """Return the processes besides the one that serves."""
        return [process.child for process in [*self._leaving, *([self._next] if self._next else [])]]

    def reload(self) -> None:
        """Start the next process; it takes over once it serves (`look`)."""
        if self._next is not None:
            self._tell("a reload is under way already")
            return
        self._tell("reloading web …")
        following = WebProcess(self._make)
        try:
            following.child.start()
        except OSError as error:
            self._tell(f"web was not reloaded: {error}")
            return
        self._next, self._deadline = following, time.monotonic() + _READY_PATIENCE

    def look(self) -> None:
        """Go on with a reload, if one is under way, and forget who has finished."""
        for process in [process for process in self._leaving if not process.child.alive]:
            process.forget()
            self._leaving.remove(process)
            self._tell(f"web process {process.child.pid} has finished")
        following = self._next
        if following is None:
            return
        if following.ready:
            before, self.serving, self._next = self.serving, following, None
            before.drain()
            self._leaving.append(before)
            self._tell(f"reloaded web: process {following.child.pid} serves, process {before.child.pid} finishes")
        elif not following.child.alive:
            following.forget()
            self._next = None
            last = "\n".join(following.child.last_lines)
            self._tell(f"web was not reloaded: the new process ended ({following.child.end})\n{last}".rstrip())
        elif time.monotonic() > self._deadline:
            following.child.send(following.child.spec.stop_signal)
            self._leaving.append(following)
            self._next = None
            self._tell(f"web was not reloaded: the new process did not serve within {_READY_PATIENCE:.0f} s")

    def cut_drain_short(self) -> None:
        """Give none of them more time than at any stop, which is to follow."""
        for process in self._leaving:
            process.cut_drain_short()


def request_reload(tell: Callable[[str], None]) -> int:
    """Ask the server that runs on this home to replace its web process. Return the exit code."""
    number = data_directory.find_lock_holder(data_directory.path())
    if number is None:
        tell(f"no server runs on {data_directory.path()}")
        return 1
    os.kill(number, signal.SIGUSR2)
    tell(f"asked the server (process {number}) to reload; it says how that goes")
    return 0

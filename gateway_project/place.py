"""Where one server runs: its folder, its mode and its address.

Knows ports, and whether something answers there. Must never know what is served.
"""

from __future__ import annotations

import errno
import http.client
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from gateway_project import home

_LOOPBACK = "127.0.0.1"
# Seconds for a port that a server just killed still holds.
_PORT_PATIENCE = 3.0
_ANSWER_TIMEOUT = 2.0


class StartError(Exception):
    """The server cannot start; the message says why."""


@dataclass(frozen=True)
class Place:
    """Where the server runs."""

    home: Path
    mode: str
    host: str
    port: int

    @classmethod
    def of_environment(cls) -> Place:
        """Read GATEWAY_HOME, GATEWAY_MODE, GATEWAY_HOST and PORT. Raises StartError."""
        port = os.environ.get("PORT") or "8000"
        if not port.isdecimal() or not 0 < int(port) < 65536:
            raise StartError(f"PORT must be a number between 1 and 65535; it is {port!r}")
        mode = os.environ.get("GATEWAY_MODE") or "development"
        return cls(home.path(), mode, os.environ.get("GATEWAY_HOST") or _LOOPBACK, int(port))

    @property
    def reached_at(self) -> str:
        """The host by which this machine reaches the server."""
        return {"0.0.0.0": _LOOPBACK, "::": "::1"}.get(self.host, self.host)  # noqa: S104 - compared, never bound

    @property
    def url(self) -> str:
        """The URL by which this machine reaches the server."""
        host = f"[{self.reached_at}]" if ":" in self.reached_at else self.reached_at
        return f"http://{host}:{self.port}"


def wait_for_port(place: Place) -> None:
    """Return when the port is free. Raises StartError when another process keeps it, or nobody could listen there."""
    deadline = time.monotonic() + _PORT_PATIENCE
    while not _is_free(place.host, place.port):
        if time.monotonic() > deadline:
            raise StartError(f"port {place.port} on {place.host} is taken: set PORT to another one")
        time.sleep(0.1)


def free_port(preferred: int = 0) -> int:
    """Return a free port on the loopback address: the preferred one if possible."""
    if 0 < preferred < 65536 and _is_free(_LOOPBACK, preferred):
        return preferred
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        return int(probe.getsockname()[1])


def answers_ok(place: Place) -> bool:
    """Does `GET /` answer 200 there?"""
    connection = http.client.HTTPConnection(place.reached_at, place.port, timeout=_ANSWER_TIMEOUT)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _is_free(host: str, port: int) -> bool:
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        raise StartError(f"GATEWAY_HOST {host} and PORT {port} cannot be listened on: {error}") from error
    return True

"""Server configuration: data directory, mode, host and port of one server."""

from __future__ import annotations

import http.client
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from gateway_project.configuration import data_directory

_LOOPBACK = "127.0.0.1"
_ANSWER_TIMEOUT = 2.0


class StartError(Exception):
    """The server cannot start; the message says why."""


@dataclass(frozen=True)
class ServerConfig:
    """Where the server runs."""

    data_directory: Path
    mode: str
    host: str
    port: int

    @classmethod
    def from_environment(cls) -> ServerConfig:
        """Read GATEWAY_HOME, GATEWAY_MODE, GATEWAY_HOST and PORT. Raises StartError."""
        port = os.environ.get("PORT") or "8000"
        if not port.isdecimal() or not 0 < int(port) < 65536:
            raise StartError(f"PORT must be a number between 1 and 65535; it is {port!r}")
        mode = os.environ.get("GATEWAY_MODE") or "development"
        return cls(data_directory.path(), mode, os.environ.get("GATEWAY_HOST") or _LOOPBACK, int(port))

    @property
    def reached_at(self) -> str:
        """The host by which this machine reaches the server."""
        return {"0.0.0.0": _LOOPBACK, "::": "::1"}.get(self.host, self.host)  # noqa: S104 - compared, never bound

    @property
    def url(self) -> str:
        """The URL by which this machine reaches the server."""
        host = f"[{self.reached_at}]" if ":" in self.reached_at else self.reached_at
        return f"http://{host}:{self.port}"


def reserve_port(preferred: int) -> socket.socket:
    """Return a socket that keeps a port of the loopback address for a process that listens with SO_REUSEPORT.

    The preferred port if it is free. The socket does not listen: without that process connections are refused.
    """
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        keeper.bind((_LOOPBACK, preferred))
    except (OSError, OverflowError):
        keeper.bind((_LOOPBACK, 0))
    return keeper


def is_healthy(config: ServerConfig) -> bool:
    """Does `GET /` answer 200 there?"""
    connection = http.client.HTTPConnection(config.reached_at, config.port, timeout=_ANSWER_TIMEOUT)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def has_terminal() -> bool:
    """Was this process started in a terminal, which sends SIGHUP when it closes?"""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def read_procfile(procfile: Path) -> dict[str, str]:
    """Return the commands of a Procfile by process name, in its order."""
    lines = [line.partition(":") for line in procfile.read_text().splitlines()]
    return {name.strip(): command.strip() for name, _, command in lines if command and not name.startswith("#")}


def refuse_shared_database(config: ServerConfig) -> None:
    """Raise StartError for a database of production that others on the machine could reach."""
    if config.mode == "production" and os.geteuid() == 0 and not os.environ.get("DATABASE_URL"):
        raise StartError(
            "PostgreSQL refuses to be root and would run as a user whom others on this machine can be, too: "
            "for production set DATABASE_URL, or start the server as a user of its own"
        )

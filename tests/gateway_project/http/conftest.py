"""The worker class of production, serving a small application; and a client that writes bytes as it likes."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from tests.stack.product import descendants, eventually, free_port

ROOT = Path(__file__).resolve().parents[3]
# The file that lets held requests go, as in `application.py`, which only the server imports.
RELEASED = "released"
# Seconds to wait for what a busy machine may put off; nothing takes as long.
PATIENCE = 40.0
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] \d{3} ")


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    port: int
    pid: int
    # Where requests that are held at work are noted (`hold`).
    held: Path
    log: IO[bytes]

    def connect(self) -> socket.socket:
        """Return a new connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def ask(self, request: bytes, answers: int = 1) -> bytes:
        """Return everything the server says on a connection of its own, until it closes.

        The client ends its side once so many answers have begun: to end it before is to leave, and the server drops
        requests of clients that have left.
        """
        with self.connect() as client:
            client.sendall(request)
            data = b""
            while len(_STATUS_LINE.findall(data)) < answers:
                piece = client.recv(65_536)
                if not piece:
                    return data
                data += piece
            with suppress(OSError):
                # The server may have closed the connection already.
                client.shutdown(socket.SHUT_WR)
            return data + until_closed(client)

    def hold(self, client: socket.socket, path: bytes = b"/held") -> None:
        """Send a request, and wait until the application works on it: it does until `release`.

        `/blocking` keeps the worker's event loop from all other work as well.
        """
        before = len(list(self.held.iterdir()))
        client.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: gateway\r\n\r\n")
        eventually(lambda: len(list(self.held.iterdir())) > before)

    def release(self) -> None:
        """Let all held requests be answered, those to come too."""
        (self.held / RELEASED).touch()

    def wait_for_log(self, words: str) -> None:
        """Wait until the server has logged these words."""
        number = self.log.fileno()
        eventually(lambda: words in os.pread(number, os.fstat(number).st_size, 0).decode())


def until_closed(client: socket.socket) -> bytes:
    """Return what comes until the other side closes."""
    parts = []
    while data := client.recv(65_536):
        parts.append(data)
    return b"".join(parts)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """Return a server that the session shares."""
    with serving() as one:
        yield one


class serving:  # noqa: N801 - reads as what it does
    """A server for as long as the block lasts; `settings` are gunicorn's, `variables` the environment's.

    Its output is in `said` once the block is over.
    """

    def __init__(self, *settings: str, **variables: str) -> None:
        self._port = free_port()
        self._settings = settings
        self._variables = variables
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the server
        self._held = tempfile.TemporaryDirectory()
        self.said = ""

    def __enter__(self) -> Server:
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "gunicorn", "--config", "gateway_project/processes/gunicorn.py"),
                *self._settings,
                "tests.gateway_project.http.application:application",
            ],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONFAULTHANDLER": "1",
                "PORT": str(self._port),
                "WEB_WORKERS": "1",
                "HELD_REQUESTS": self._held.name,
                **self._variables,
            },
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        eventually(self._listens, patience=PATIENCE)
        return Server(self._port, self.process.pid, Path(self._held.name), self._log)

    def __exit__(self, *_: object) -> None:
        (Path(self._held.name) / RELEASED).touch()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            # They say where they stand as they go.
            for pid in (*descendants(self.process.pid), self.process.pid):
                os.kill(pid, signal.SIGABRT)
            self.process.wait(PATIENCE)
            raise AssertionError(f"the server did not stop:\n{self._read()}") from None
        self.said = self._read()

    def _listens(self) -> bool:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
            return True
        return False

    def _read(self) -> str:
        self._held.cleanup()
        with self._log as log:
            log.seek(0)
            return log.read().decode()

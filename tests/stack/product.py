"""The product, started as its user starts it, in a home of its own.

Does not import the product's apps.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import requests

from tests.stack import prepared_home
from tests.stack.commands import Commands

PROJECT = Path(__file__).resolve().parents[2]
# Seconds for a management command: a busy machine takes ten times as long as one that is idle.
COMMAND_PATIENCE = 180.0


# Words in the command line of the store that keeps money; the cache runs the same program on another socket.
MONEY_STORE = ("valkey-server", "run/valkey.sock")


class Product:
    """A running server: where it is, who may use it, and its processes."""

    # A process that runs management commands, once one was asked for.
    _commands: Commands | None = None

    def __init__(self, home: Path, **environment: str) -> None:
        _let_pass(home)
        prepared_home.fill(home, environment, _prepare)
        self.port = int(environment.get("PORT") or free_port())
        self.url = f"http://127.0.0.1:{self.port}"
        # Stores of its own, whatever the test run itself uses.
        stores = {"DATABASE_URL", "REDIS_URL", "CACHE_URL", "CELERY_BROKER_URL"}
        inherited = {name: value for name, value in os.environ.items() if name not in stores}
        self.environment = {
            **inherited,
            "GATEWAY_HOME": str(home),
            "PORT": str(self.port),
            "WEB_WORKERS": "1",
            **environment,
        }
        self.environment.pop("PROMETHEUS_MULTIPROC_DIR", None)
        self.output: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gateway_project.processes.server"],
            cwd=PROJECT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._wait_until_ready()
        # As the server's own `manage.py demo` has kept it.
        self.demo: dict[str, Any] = {"baseUrl": self.url, **json.loads((home / "demo.json").read_text())}

    @property
    def pid(self) -> int:
        """The id of the process that holds all others."""
        return self._process.pid

    def _wait_until_ready(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.output.append(line)
            if line.startswith("ready "):
                # Once a pipe is full and has no reader, its writer blocks.
                self._drain = subprocess.Popen(["cat"], stdin=self._process.stdout, stdout=subprocess.DEVNULL)
                return
        raise AssertionError("the server did not start:\n" + "".join(self.output[-40:]))

    def manage(self, *arguments: str, patience: float = COMMAND_PATIENCE) -> str:
        """Return what a management command prints."""
        if self._commands is None:
            self._commands = Commands(self.environment)
        done = self._commands.run(*arguments, patience=patience)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def get(self, path: str, **query: Any) -> Any:
        """Return the JSON at a path, asked with the demo key."""
        response = requests.get(
            self.url + path, params=query, headers={"Authorization": f"Bearer {self.demo['apiKey']}"}, timeout=60
        )
        assert response.status_code == 200, response.text
        return response.json()

    def chat(self, content: str, request_id: str = "", timeout: float = 30, **fields: Any) -> requests.Response:
        """Ask for a chat completion with the demo key; of `sandbox/echo` unless `model` says otherwise."""
        return requests.post(
            f"{self.url}/v1/chat/completions",
            json={"model": "sandbox/echo", "messages": [{"role": "user", "content": content}], **fields},
            headers={"Authorization": f"Bearer {self.demo['apiKey']}", "x-request-id": request_id or uuid4().hex},
            timeout=timeout,
            stream=bool(fields.get("stream")),
        )

    def all_logs(self) -> list[dict[str, Any]]:
        """Return every log entry of the demo project, newest first."""
        found: list[dict[str, Any]] = []
        cursor: dict[str, str] = {}
        while True:
            page = self.get("/logs", limit=100, **cursor)
            found += page["logs"]
            if not page["pagination"]["hasMore"]:
                return found
            cursor = {"cursor": page["pagination"]["nextCursor"]}

    def sandbox(self, method: str, path: str, **query: str) -> Any:
        """Ask the sandbox upstream about itself."""
        (pid,) = self.processes("apps.sandbox", "--port")[-1:]
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        port = command[command.index(b"--port") + 1].decode()
        return requests.request(method, f"http://127.0.0.1:{port}{path}", params=query, timeout=60).json()

    def metrics(self) -> dict[str, float]:
        """Return the metrics without labels, by name; those with labels by their whole line."""
        text = requests.get(f"{self.url}/metrics", timeout=30).text
        lines = [line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#")]
        return {name: float(value) for name, _, value in lines}

    def credits(self) -> str:
        """Return the organization's credits, as its owner sees them."""
        response = requests.get(
            f"{self.url}/organization", headers={"Authorization": f"Bearer {self.demo['sessionToken']}"}, timeout=60
        )
        return str(response.json()["organizations"][0]["credits"])

    def log_of(self, request_id: str) -> dict[str, Any]:
        """Return the one log entry of a request."""
        found = eventually(
            lambda: [one for one in self.get("/logs", limit=100)["logs"] if one["requestId"] == request_id]
        )
        assert len(found) == 1, found
        return dict(found[0])

    def processes(self, *words: str) -> list[int]:
        """Return the ids of the server's processes whose command line holds all the words."""
        found = []
        for pid in descendants(self._process.pid):
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                if all(word in command for word in words):
                    found.append(pid)
        return found

    def kill(self, *words: str) -> int:
        """Kill (SIGKILL) the youngest process whose command line holds the words; return its id."""
        pid = eventually(lambda: self.processes(*words))[-1]
        os.kill(pid, signal.SIGKILL)
        return pid

    def cut(self) -> None:
        """Kill all processes at once, so that none can clean up, and wait until they are gone."""
        if self._process.poll() is not None:
            return
        self._end_commands()
        everyone = [self.pid, *descendants(self.pid)]
        for kind in (signal.SIGSTOP, signal.SIGKILL):
            for pid in everyone:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, kind)
        self._process.wait(60)
        self._drain.wait(60)
        eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in everyone))

    def _end_commands(self) -> None:
        if self._commands is not None:
            self._commands.close()
            self._commands = None

    def stop(self) -> int:
        """Stop the server as Ctrl-C does; return its exit code."""
        self._end_commands()
        self._process.send_signal(signal.SIGINT)
        code = self._process.wait(60)
        self._drain.wait(60)
        return code


def _let_pass(home: Path) -> None:
    """Let PostgreSQL, which root runs as an unprivileged user, keep its data in the home, to be deleted with it."""
    temporary = Path(tempfile.gettempdir()).resolve()
    for folder in (home := home.resolve(), *home.parents):
        if temporary in folder.parents and folder.exists() and folder.stat().st_uid == os.geteuid():
            folder.chmod(folder.stat().st_mode | 0o011)


def eventually(look: Callable[[], Any], *, patience: float = 60.0) -> Any:
    """Return what `look` finds as soon as it is true; fail when patience ends."""
    deadline, pause = time.monotonic() + patience, 0.005
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def _prepare(home: Path) -> None:
    """Start a product in an empty home, and stop it."""
    # The default, named: this one has nothing to begin as a copy of.
    assert Product(home, GATEWAY_MODE="development").stop() == 0


def descendants(pid: int) -> Iterator[int]:
    """Yield the ids of a process's children and theirs, eldest first."""
    with contextlib.suppress(OSError):
        for task in sorted(Path(f"/proc/{pid}/task").iterdir()):
            for child in (task / "children").read_text().split():
                yield int(child)
                yield from descendants(int(child))


def free_port() -> int:
    """Return a free port that the system gives to no connection: it stays free until a server listens there."""
    while True:
        port = 10_000 + secrets.randbelow(22_768)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port

"""Nodes with homes of their own on shared stores: three of web, two of settlers, one each of worker and beat.

Stands for systemd on each machine (started again when it dies, drained before it is stopped) and for the load balancer
before the web nodes, which follows `/readyz`.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import requests

from gateway_project.configuration import data_directory
from gateway_project.configuration.server_config import read_procfile
from gateway_project.embedded.child_process import spawn
from tests.stack.product import PROJECT, eventually, free_port

WEB, SETTLERS = 3, 2
# Seconds: until what died is started again, and between two looks of the load balancer.
_RESTART, _LOOK = 0.5, 0.2
# Seconds that a node says it drains before it is stopped: several looks of the load balancer.
_DRAIN = 2.0
_STOP_PATIENCE = 60.0
# Log lines to show of a node that does not come back.
_TOLD = 20


class Node:
    """One process of the Procfile with a home of its own; who starts it is the fleet's keeper alone."""

    def __init__(self, name: str, role: str, folder: Path, shared: dict[str, str]) -> None:
        self.name, self.role = name, role
        self.home = folder / name
        data_directory.create(self.home)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.code = PROJECT
        self._metrics = self.home / "run" / "metrics"
        self._environment = {
            **shared,
            "GATEWAY_HOME": str(self.home),
            "PORT": str(self.port),
            "PROMETHEUS_MULTIPROC_DIR": str(self._metrics),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._not_before = 0.0
        self.wanted = True
        self.ready = False

    @property
    def pid(self) -> int | None:
        """The process, as long as it lives."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def keep(self) -> None:
        """Start it when it ought to run and does not, a moment after it died."""
        if not self.wanted or self.pid is not None:
            return
        if self._process is not None:
            self._process, self._not_before = None, time.monotonic() + _RESTART
        if time.monotonic() < self._not_before:
            return
        shutil.rmtree(self._metrics, ignore_errors=True)
        self._metrics.mkdir(mode=0o700)
        command = read_procfile(self.code / "Procfile")[self.role]
        with (self.home / "logs" / f"{self.role}.log").open("ab") as output:
            self._process = spawn(
                ["/bin/sh", "-c", f"exec {command}"],
                output=output,
                env={**self._environment, "PYTHONPATH": str(self.code)},
                cwd=self.code,
                background=self.role != "web",
            )

    def look(self) -> None:
        """See whether a web node wants requests."""
        ready = False
        if self.pid is not None:
            with suppress(requests.RequestException):
                status = requests.get(f"{self.url}/readyz", timeout=2).status_code
                if status == 404:
                    # A version that does not say: who restarts it takes it out of the load balancer by hand.
                    status = requests.get(self.url, timeout=2).status_code if self.wanted else 503
                ready = status == 200
        self.ready = ready

    def kill(self) -> bool:
        """Kill it with all of its children (SIGKILL); return whether there was anything to kill."""
        pid = self.pid
        if pid is None:
            return False
        self.ready = False
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        return True

    def restart(self, code: Path | None = None) -> None:
        """Drain it, stop it (SIGTERM), and wait until it runs again, on other code where that is said."""
        self.wanted = False
        if self.role == "web":
            # As `gateway drain` leaves it.
            (self.home / "run" / "draining").touch()
            time.sleep(_DRAIN)
        process = self._process
        if process is not None:
            process.terminate()
            process.wait(_STOP_PATIENCE)
        self.ready = False
        self.code = code or self.code
        self.wanted = True
        try:
            eventually((lambda: self.ready) if self.role == "web" else (lambda: self.pid), patience=_STOP_PATIENCE)
        except AssertionError as error:
            said = (self.home / "logs" / f"{self.role}.log").read_text(errors="replace").splitlines()[-_TOLD:]
            raise AssertionError(
                "\n".join([f"{self.name} did not come back on {self.code}; it said:", *said])
            ) from error


class Nodes:
    """The nodes, their keeper and their load balancer; `url` is the next web node that is ready."""

    def __init__(self, folder: Path, shared: dict[str, str]) -> None:
        self.shared = {**shared, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
        counts = {"web": WEB, "settler": SETTLERS, "worker": 1, "beat": 1}
        self.all = [
            Node(f"{role}-{number}", role, folder, self.shared)
            for role, count in counts.items()
            for number in range(1, count + 1)
        ]
        self.web = self.of("web")
        self._turns = itertools.count()
        self._over, self._blind = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=self._run, args=("keep", self.all, 0.1))]
        self._threads += [threading.Thread(target=self._run, args=("look", [node], _LOOK)) for node in self.web]
        for thread in self._threads:
            thread.start()
        try:
            eventually(self.are_whole, patience=120)
        except AssertionError:
            self.close()
            raise

    def of(self, role: str) -> list[Node]:
        """Return the nodes of a role."""
        return [node for node in self.all if node.role == role]

    def are_whole(self) -> bool:
        """Tell whether every process runs and every web node is ready."""
        return all(node.pid is not None for node in self.all) and all(node.ready for node in self.web)

    @property
    def url(self) -> str:
        """Where the load balancer sends the next request; any node where none is ready."""
        ready = [node for node in self.web if node.ready] or self.web
        return ready[next(self._turns) % len(ready)].url

    def stop_looking(self) -> None:
        """Have the load balancer look no more: who was ready stays so."""
        self._blind.set()

    def close(self) -> None:
        """End everybody."""
        for node in self.all:
            node.wanted = False
        self._over.set()
        for thread in self._threads:
            thread.join()
        for node in self.all:
            node.kill()

    def _run(self, verb: str, nodes: list[Node], pause: float) -> None:
        while not self._over.wait(pause):
            for node in nodes:
                if verb != "look" or not self._blind.is_set():
                    getattr(node, verb)()

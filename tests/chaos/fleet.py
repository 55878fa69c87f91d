"""`script/chaos --fleet`: the scene of several nodes on shared stores behind PgBouncer, and the faults of its parts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import requests
from redis import Redis

from gateway_project.configuration import data_directory
from gateway_project.embedded.child_process import spawn, stop_child
from gateway_project.embedded.postgres import Postgres
from tests.chaos import postgres_arrangement
from tests.chaos.clients import Clients, Way
from tests.chaos.faults import Fault, calm
from tests.chaos.nodes import WEB, Nodes
from tests.chaos.scene import Scene
from tests.chaos.valkey_arrangement import chosen
from tests.stack.product import PROJECT, Product, eventually, free_port
from tests.support.pgbouncer import PROGRAM, PgBouncer

SECRETS = {
    "SECRET_KEY": "one secret of all nodes, for sessions and links",
    "API_KEY_PEPPER": "another secret of all nodes, for digests of keys",
    "ENCRYPTION_KEYS": "r4wPTm1ZpO1wO0mGm9Q1f3hQm8q0iJmXxY0m0l3h1zU=",
}
# Seconds that a store or PgBouncer stays dead.
_AWAY = 1.0


class Fleet(Product):
    """The nodes as one product: asked at whichever node is ready."""

    # Skips the constructor of a single product: the nodes own the processes.
    def __init__(self, folder: Path, *, pooled: bool = True, **settings: str) -> None:
        self._pooled = pooled and PROGRAM is not None
        folder.mkdir(exist_ok=True)
        folder.chmod(0o711)
        self._ends = ExitStack()
        try:
            self._start(folder, settings)
        except BaseException:
            self._ends.close()
            raise

    def _start(self, folder: Path, settings: dict[str, str]) -> None:
        self.pooler: PgBouncer | None = None
        if "DATABASE_URL" not in settings:
            settings = {**settings, "DATABASE_URL": self._database(folder)}
        self.valkey = chosen()(folder / "valkey")
        self._ends.callback(self.valkey.close)
        port = free_port()
        self.sandbox_url = f"http://localhost:{port}"
        own = {name: value for name, value in os.environ.items() if name != "PROMETHEUS_MULTIPROC_DIR"}
        sandbox = spawn(
            [sys.executable, "-m", "apps.sandbox", "--port", str(port)],
            output=subprocess.DEVNULL,
            env=own,
            cwd=PROJECT,
        )
        self._ends.callback(sandbox.kill)
        shared = {
            **own,
            **SECRETS,
            **self.valkey.settings,
            # Nothing is asked of a connection that PgBouncer would not know.
            "DATABASE_STATEMENT_TIMEOUT": "0",
            "SANDBOX_BASE_URL": f"{self.sandbox_url}/v1",
            "SANDBOX_API_KEY": "sandbox",
            **settings,
            "WEB_WORKERS": "1",
        }
        operator = folder / "operator"
        data_directory.create(operator)
        self.environment = {**shared, "GATEWAY_HOME": str(operator)}
        self.manage("prepare")
        self.nodes = Nodes(folder, shared)
        self._ends.callback(self.nodes.close)
        self.demo: dict[str, Any] = json.loads((operator / "demo.json").read_text())

    def _database(self, folder: Path) -> str:
        """Start PostgreSQL, behind PgBouncer where there is one that is wanted; return its URL."""
        stores = folder / "stores"
        data_directory.create(stores)
        self.postgres = Postgres(stores)
        self._start_postgres()
        self._ends.callback(lambda: self._stop_postgres())
        if self._pooled:
            self.pooler = PgBouncer(folder / "pooler", self.postgres.url)
            self._ends.callback(self.pooler.kill)
        return self.pooler.url if self.pooler else self.postgres.url

    @property
    def url(self) -> str:  # type: ignore[override]  # of one product it never changes
        """The next node that is ready."""
        return self.nodes.url

    def stop(self) -> int:
        """End everybody."""
        self._ends.close()
        return 0

    def restart_postgres(self, seconds: float) -> None:
        """Stop PostgreSQL as an operator does, and start it again after a while."""
        self._stop_postgres()
        time.sleep(seconds)
        self._start_postgres()

    def spools(self) -> list[Path]:
        """Return what the nodes have yet to hand to Valkey."""
        return [path for node in self.nodes.all for path in (node.home / "spool").glob("*")]

    def _start_postgres(self) -> None:
        self._postgres_process = self.postgres.start(subprocess.DEVNULL)
        eventually(self.postgres.answers, patience=60)

    def _stop_postgres(self) -> None:
        stop_child(self._postgres_process, self.postgres.stop_signal, self.postgres.force_signal, 10)


class RetryingClients(Clients):
    """Clients that ask again as SDKs do: twice, after refusals that may pass and after connections that broke.

    Each try has an id of its own, so that its answer can be compared with the books.
    """

    _TRIES, _PAUSE = 3, 0.5

    def _ask_for(self, way: Way, request_id: str, content: str, *, stream: bool, leaves: bool) -> None:
        for number in range(1, self._TRIES + 1):
            one = request_id if number == 1 else f"{request_id}-{number}"
            self.seen.asked.add(one)
            try:
                super()._ask_for(way, one, content, stream=stream, leaves=leaves)
            except requests.Timeout:
                self.heard.hung.add(one)
            except requests.RequestException:
                self.heard.broken.add(one)
            else:
                if self.heard.refused.get(one) not in {408, 409, 429, 503}:
                    with self._lock:
                        self.seen.held += 1
                    return
            if request_id.startswith("probe-"):
                return
            time.sleep(self._PAUSE * number)
        with self._lock:
            self.seen.given_up += 1


class FleetScene(Scene):
    """The fleet with the tenants of every scene."""

    workers = WEB
    clients_of = RetryingClients

    def start(self) -> Product:
        """Start the fleet."""
        self.fleet = Fleet(self.home, **self.settings)
        return self.fleet

    @property
    def sandbox(self) -> str:
        """The one provider of all nodes."""
        return self.fleet.sandbox_url

    @property
    def valkey(self) -> Redis:
        """A client of it."""
        client: Redis = self.fleet.valkey.connect()
        return client

    def is_whole(self) -> bool:
        """Tell whether every node serves and nothing waits in a spool."""
        return self.fleet.nodes.are_whole() and not self.fleet.spools()


def _killed(scene: Scene, seconds: float, role: str) -> int:
    """Kill one node of a role after the other."""
    assert isinstance(scene, FleetScene)
    until, count = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        count += scene.chance.choice(scene.fleet.nodes.of(role)).kill()
        time.sleep(scene.chance.uniform(1.0, 2.0))
    return count


def _lost(scene: Scene, seconds: float, what: str) -> int:
    """Lose something that all nodes need, for a moment."""
    assert isinstance(scene, FleetScene)
    fleet = scene.fleet
    if what == "valkey":
        fleet.valkey.lose_primary(_AWAY)
    elif what == "postgres":
        fleet.restart_postgres(_AWAY)
    else:
        assert fleet.pooler is not None
        fleet.pooler.kill()
        time.sleep(_AWAY)
        fleet.pooler.start()
    scene.over_at = time.monotonic()
    time.sleep(max(0.0, seconds - _AWAY))
    return 1


def no_pgbouncer() -> str | None:
    """Return why PgBouncer cannot be killed here."""
    return None if PROGRAM else "PgBouncer is not installed (Debian: apt install pgbouncer)"


FLEET_FAULTS = [
    Fault("calm", "nothing is broken", calm),
    *(
        Fault(f"{name}-killed", f"kill -9, again and again: {words}", partial(_killed, role=role))
        for name, role, words in (
            ("web-node", "web", "one of three web nodes, all of it"),
            ("settler", "settler", "one of two settlers"),
            ("worker", "worker", "the Celery worker"),
            ("beat", "beat", "beat"),
        )
    ),
    Fault(
        "pgbouncer-killed", "kill -9: PgBouncer, away for 1 s", partial(_lost, what="pgbouncer"), missing=no_pgbouncer
    ),
    Fault("valkey-primary-killed", "kill -9: Valkey's primary, away for 1 s", partial(_lost, what="valkey")),
    Fault(
        "postgres-primary-killed",
        "kill -9: PostgreSQL's primary, whose synchronous replica is promoted after 1 s; no process is restarted",
        postgres_arrangement.lose_primary,
        alone=True,
        settings=postgres_arrangement.replicated,
    ),
    Fault("postgres-restarted", "PostgreSQL is stopped, and started after 1 s", partial(_lost, what="postgres")),
]

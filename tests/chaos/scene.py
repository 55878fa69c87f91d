"""The product under chaos: its tenants, its stores from outside, and its clients."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import requests
from redis import Redis
from redis.exceptions import RedisError

from tests.chaos.clients import Clients, Way
from tests.stack.chaos import Door, pids_of, send_signal
from tests.stack.product import Product, eventually

# USD that each process may let through for an organization while its credits cannot be checked.
ALLOWANCE = Decimal("0.0002")
WORKERS = 2
# USD of an organization that is to run out, and of the key with a limit.
MODEST = Decimal("0.002")
SETTINGS = {
    "WEB_WORKERS": str(WORKERS),
    "RATE_LIMIT_ENTERPRISE": "10000000",
    "GATEWAY_ALLOW_PRIVATE_ADDRESSES": "true",
    "UPSTREAM_FIRST_BYTE_TIMEOUT": "5",
    "OFFLINE_ALLOWANCE_USD": str(ALLOWANCE),
}


@dataclass
class Scene:
    """A running product with three organizations: one that has plenty, one that has little, one that has nothing."""

    home: Path
    chance: random.Random
    settings: dict[str, str]
    product: Product = field(init=False)
    clients: Clients | None = None
    # Remarks of a fault beside its figures.
    notes: list[str] = field(default_factory=list)
    # When a fault was over, monotonic, where that was before it returned.
    over_at: float | None = None
    # Web workers, each of which has the allowance while credits cannot be checked; and the class of clients.
    workers: ClassVar[int] = WORKERS
    clients_of: ClassVar[type[Clients]] = Clients

    def __post_init__(self) -> None:
        self.product = self.start()
        demo = self.product.demo
        self.manage("PATCH", f"/organization/{demo['organizationId']}", retentionLevel="retain")
        keeping = {"mode": "credits", "cachingEnabled": True, "cacheDurationSeconds": 60}
        self.manage(
            "POST",
            "/keys/provider?validate=false",
            provider="custom",
            providerName="ours",
            baseUrl=f"{self.sandbox}/v1",
            token="sk-of-ours",
            organizationId=demo["organizationId"],
        )
        self._ways = [
            Way(Door(demo["apiKey"], "sandbox/echo")),
            Way(Door(demo["apiKey"], "sandbox/echo"), route="messages"),
            Way(Door(self._key_for(name="keeping", **keeping), "sandbox/echo")),
            Way(Door(self._key_for(name="own", mode="api-keys"), "custom:ours/echo")),
        ]
        self.modest, modest_key = self._organization("Modest")
        self.empty, empty_key = self._organization("Empty")
        self._poor = [
            Way(Door(modest_key, "sandbox/echo"), poor=True),
            Way(Door(empty_key, "sandbox/echo"), poor=True),
        ]

    def start(self) -> Product:
        """Start the product to strike."""
        return Product(self.home, **self.settings)

    def is_whole(self) -> bool:
        """Tell whether all parts are there again, besides that requests are answered."""
        return True

    @property
    def sandbox(self) -> str:
        """The sandbox's address, by a name that is no provider's of the service."""
        (pid,) = eventually(lambda: self.product.processes("apps.sandbox", "--port"))
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return f"http://localhost:{words[words.index(b'--port') + 1].decode()}"

    def weather(self, script: str) -> None:
        """Let the sandbox misbehave by a script; an empty one is fair weather."""
        requests.put(f"{self.sandbox}/sandbox/weather", data=script, timeout=5)

    @property
    def valkey(self) -> Redis:
        """A connection to the product's store."""
        url = self.settings.get("REDIS_URL")
        url = url or json.loads((self.home / "run" / "stores.json").read_text())["redis_url"]
        return Redis.from_url(url, decode_responses=True, socket_timeout=5)

    def manage(self, method: str, path: str, **body: Any) -> Any:
        """Ask management as the owner of all organizations; again for a while as long as it is not available."""
        headers = {"Authorization": f"Bearer {self.product.demo['sessionToken']}"}
        until, refused = time.monotonic() + 30, 0
        while True:
            answer = requests.request(method, self.product.url + path, json=body or None, headers=headers, timeout=30)
            if answer.status_code != 503 or time.monotonic() > until:
                break
            refused += 1
            time.sleep(0.5)
        if refused:
            self.notes.append(f"management said 503 {refused} times after all was well")
        assert answer.ok, answer.text
        return answer.json()

    def credits(self) -> dict[str, Decimal]:
        """Return every organization's credits."""
        return {one["id"]: Decimal(one["credits"]) for one in self.manage("GET", "/organization")["organizations"]}

    def _organization(self, name: str) -> tuple[str, str]:
        made = self.manage("POST", "/organization", name=name)["organization"]["id"]
        self.product.manage("set_plan", made, "enterprise")
        [project] = self.manage("GET", f"/organization/{made}/projects")["projects"]
        key = self.manage("POST", "/keys/api", description=name, projectId=project["id"])["apiKey"]
        return made, key["token"]

    def _key_for(self, **project: Any) -> str:
        owner = self.product.demo["organizationId"]
        made = self.manage("POST", "/projects", organizationId=owner, **project)["project"]
        return str(self.manage("POST", "/keys/api", description="chaos", projectId=made["id"])["apiKey"]["token"])

    # --- load

    def begin(self, clients: int) -> str:
        """Put everybody's means in order, and let clients ask; return the id of the key with a limit of its own."""
        missing = MODEST - self.credits()[self.modest]
        if missing > 0:
            self.product.manage("grant_credits", self.modest, str(missing))
        project = self.product.demo["projectId"]
        words = {"description": "limited", "projectId": project, "usageLimit": str(MODEST)}
        limited = self.manage("POST", "/keys/api", **words)["apiKey"]
        ways = [*self._ways, *self._poor, Way(Door(limited["token"], "sandbox/echo"), poor=True)]
        self.clients = self.clients_of(self.product, ways, clients, self.chance)
        return str(limited["id"])

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Hold the clients back, and wait until nothing is under way nor waits to be recorded."""
        assert self.clients is not None
        self.clients.pause()
        try:
            eventually(self._nothing_waits, patience=60)
            yield
        finally:
            self.clients.go_on()

    def _nothing_waits(self) -> bool:
        with suppress(RedisError):
            store = self.valkey
            # Behind a tag where they are of a shard of a cluster.
            notes = sum(store.hlen(name) for pattern in ("notes:*", "{*}:notes:*") for name in store.keys(pattern))
            waiting = sum(store.xlen(name) for pattern in ("outbox", "{*}:outbox") for name in store.keys(pattern))
            return not notes and not waiting
        return False

    # --- processes

    def pids(self, victim: str) -> list[int]:
        """Return the processes of a victim."""
        return pids_of(self.product, victim)

    @contextmanager
    def stopped(self, victim: str) -> Iterator[None]:
        """Stop a victim's processes for as long as the block."""
        pids = self.pids(victim)
        send_signal(pids, signal.SIGSTOP)
        try:
            yield
        finally:
            send_signal(pids, signal.SIGCONT)

    def restart(self) -> None:
        """Start the product again where it was, as an operator would."""
        deadline = time.monotonic() + 60
        while True:
            try:
                self.product = Product(self.home, **self.settings, PORT=str(self.product.port))
                return
            except AssertionError:
                # Processes of the killed product are still ending.
                if time.monotonic() > deadline:
                    raise
                time.sleep(1)

    def close(self) -> None:
        """Stop everything."""
        if self.clients is not None:
            self.clients.stop()
        self.product.stop()

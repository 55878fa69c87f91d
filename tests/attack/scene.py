"""The product with two tenants: one that attacks, and one that is to notice nothing of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import requests
from redis import Redis

from bench.machine import MEASURED, OTHERS, pin, run_at_once
from bench.subjects import upstream
from tests.attack.bystanders import workers_of
from tests.stack.product import PROJECT, Product, eventually, free_port

_PAGE = os.sysconf("SC_PAGE_SIZE")
# Limits not tested here must not end an attack early; all the rest is as an operator gets it.
SETTINGS = {
    "WEB_WORKERS": "2",
    "RATE_LIMIT_ENTERPRISE": "0",
    "GATEWAY_ALLOW_PRIVATE_ADDRESSES": "true",
    "ORGANIZATIONS_PER_USER": "10",
}
# Where names have servers that never answer.
_SILENT_NAMES = str(PROJECT / "tests" / "attack" / "silent_names")


@dataclass
class Scene:
    """A running product, and whose keys are whose."""

    product: Product
    home: Path
    # The attacker's: a key, a session, and the project that keys are made for.
    token: str
    session: str
    project: str
    # A server of another tenant's, by its name; it speaks HTTP.
    elsewhere: str
    # Keys of organizations that keep content: two with a cache of answers and the hostile provider; one on the free
    # plan without credits.
    keeper: str
    other_keeper: str
    penniless: str

    def new_key(self) -> str:
        """Return a key that no worker has seen."""
        made = manage(self.product, "POST", "/keys/api", description="cold", projectId=self.project)
        return str(made["apiKey"]["token"])

    def money_bytes(self) -> int:
        """Return the bytes that the store of reservations and records uses."""
        stores = json.loads((self.home / "run" / "stores.json").read_text())
        with Redis.from_url(stores["redis_url"]) as store:
            told: Any = store.info("memory")
        return int(told["used_memory"])

    def log_size(self) -> int:
        """Return how much the web process has said so far."""
        return sum(path.stat().st_size for path in (self.home / "logs").glob("web.log*"))

    def tracebacks(self) -> int:
        """Return how many of its tracebacks the web process has logged."""
        return sum(
            path.read_text("utf-8", "replace").count("Traceback (") for path in (self.home / "logs").glob("web*")
        )


@contextmanager
def scene(**settings: str) -> Iterator[Scene]:
    """Start the product in a home of its own, and the hostile provider; stop both at the end.

    The sandbox's models are answered by the bench's upstream, which is as quick as one thread can be: who waits for a
    provider that cannot keep up says nothing about the gateway. Attackers, bystanders and providers come from machines
    of their own: they leave one core to the product, which uses all, as it does where it is deployed, and the provider
    gets a core as soon as an answer is due.
    """
    with (
        _on_other_cores(),
        TemporaryDirectory(prefix="attack-") as folder,
        hostile_provider() as provider,
        upstream() as quick,
    ):
        home = Path(folder, "home")
        home.mkdir()
        fixed = {"SANDBOX_BASE_URL": f"http://127.0.0.1:{quick.port}/v1", "SANDBOX_API_KEY": "sandbox"}
        fixed["PYTHONPATH"] = _SILENT_NAMES
        product = Product(home, **{**SETTINGS, **fixed, **settings})
        try:
            pin([product.pid], MEASURED | OTHERS)
            for pid in quick.workers:
                run_at_once(pid)
            yield _set(product, home, provider)
        finally:
            product.stop()


@contextmanager
def _on_other_cores() -> Iterator[None]:
    """Leave the product's core alone for as long as the block; later processes may run on any core again."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, OTHERS)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@contextmanager
def hostile_provider() -> Iterator[str]:
    """Start the hostile provider; yield its address."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "tests.attack.hostile_upstream", str(port)], cwd=PROJECT)

    def answers() -> bool:
        with suppress(requests.RequestException):
            return requests.get(f"http://127.0.0.1:{port}/", timeout=1).ok
        return False

    try:
        eventually(answers, patience=30)
        yield f"http://localhost:{port}/v1"
    finally:
        process.kill()
        process.wait(10)


def _set(product: Product, home: Path, provider: str) -> Scene:
    """Make the attackers: organizations with guardrails, keys and a provider of their own, and a user's session."""
    token, project = _attacker(product, "Attackers", provider)
    keepers = [_attacker(product, name, provider, keeps=True)[0] for name in ("Keepers", "Other keepers")]
    return Scene(
        product, home, token, _session(product), project, provider.removesuffix("/v1"), *keepers, _penniless(product)
    )


def _attacker(product: Product, name: str, provider: str, *, keeps: bool = False) -> tuple[str, str]:
    """Return a key and the project of a new organization; `keeps` has it keep content and cache answers for a year."""
    organization = manage(product, "POST", "/organization", name=name)["organization"]["id"]
    product.manage("set_plan", organization, "enterprise")
    product.manage("grant_credits", organization, "1000")
    manage(product, "PUT", f"/guardrails/config/{organization}", enabled=True)
    [project] = manage(product, "GET", f"/organization/{organization}/projects")["projects"]
    if keeps:
        manage(product, "PATCH", f"/organization/{organization}", retentionLevel="retain")
        manage(product, "PATCH", f"/projects/{project['id']}", cachingEnabled=True, cacheDurationSeconds=31_536_000)
    manage(
        product,
        "POST",
        "/keys/provider?validate=false",
        provider="custom",
        providerName="hostile",
        baseUrl=provider,
        token="sk-hostile",
        organizationId=organization,
    )
    made = manage(product, "POST", "/keys/api", description="attack", projectId=project["id"])
    return str(made["apiKey"]["token"]), str(project["id"])


def _penniless(product: Product) -> str:
    """Return a key of an organization that keeps content, on the free plan and without credits."""
    organization = manage(product, "POST", "/organization", name="Penniless")["organization"]["id"]
    manage(product, "PATCH", f"/organization/{organization}", retentionLevel="retain")
    [project] = manage(product, "GET", f"/organization/{organization}/projects")["projects"]
    made = manage(product, "POST", "/keys/api", description="storage", projectId=project["id"])
    return str(made["apiKey"]["token"])


def _session(product: Product) -> str:
    """Return the session of a new user, or the demo's where sign-up is closed."""
    body = {"name": "Mallory", "email": "mallory@example.com", "password": "a quite long password 17"}
    answer = requests.post(f"{product.url}/auth/sign-up/email", json=body, timeout=20)
    return str(answer.json()["token"] if answer.ok and "token" in answer.json() else product.demo["sessionToken"])


def manage(product: Product, method: str, path: str, **body: Any) -> Any:
    """Ask management as the demo organization's owner."""
    headers = {"Authorization": f"Bearer {product.demo['sessionToken']}"}
    answer = requests.request(method, product.url + path, json=body or None, headers=headers, timeout=20)
    assert answer.ok, answer.text
    return json.loads(answer.content)


@dataclass
class Memory:
    """The memory of the workers while they are watched, in MB: of the one that has most."""

    product: Product
    before: int = 0
    peak: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.before = self.peak = self.now()
        threading.Thread(target=self._watch, daemon=True).start()

    def now(self) -> int:
        """Return what the worker has that has most."""
        return max((resident(pid) for pid in workers_of(self.product)), default=0)

    def _watch(self) -> None:
        while not self.stopping.wait(0.1):
            self.peak = max(self.peak, self.now())


def resident(pid: int) -> int:
    """Return the memory of a process in MB; 0 when it is gone."""
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE // 1024**2
    return 0

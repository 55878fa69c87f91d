"""The faults, each a block of time in which something is broken. Found by `FAULTS`, told by their docstrings.

A fault takes the scene and its seconds, breaks something, puts it right again, and returns how often it did.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from redis.exceptions import RedisError

from tests.chaos import stores
from tests.chaos.scene import Scene
from tests.stack.chaos import send_signal
from tests.stack.product import eventually

# Seconds for which a policy is trusted (`apps/gateway/access/policy_cache.py`, which needs settings to be imported).
_POLICY_AGE = 60.0

Break = Callable[[Scene, float], int]


@dataclass(frozen=True)
class Fault:
    """A fault by its name. `about` describes it; `home` and `settings` are those of its product."""

    name: str
    about: str
    strike: Break
    # Whether it needs a product of its own, which is not used for anything after it.
    alone: bool = False
    home: Callable[[Path], Any] | None = None
    settings: Callable[[Path], Any] | None = None
    # Why it cannot be had on this machine; None where it can.
    missing: Callable[[], str | None] = lambda: None


def killed(scene: Scene, seconds: float, victim: str) -> int:
    """Kill one process of a victim every second or two."""
    until, count = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        if pids := scene.pids(victim):
            send_signal([scene.chance.choice(pids)], signal.SIGKILL)
            count += 1
        time.sleep(scene.chance.uniform(0.8, 2.0))
    return count


def killed_once(scene: Scene, seconds: float, victim: str) -> int:
    """Kill one process of a victim, once."""
    pids = eventually(lambda: scene.pids(victim))
    send_signal(pids[:1], signal.SIGKILL)
    time.sleep(seconds)
    return 1


def hung(scene: Scene, seconds: float, victim: str) -> int:
    """Stop a victim for all of the time."""
    with scene.stopped(victim):
        time.sleep(seconds)
    return 1


def hung_for_long(scene: Scene, seconds: float) -> int:
    """Stop PostgreSQL for longer than a policy is trusted, which is renewed some seconds before."""
    return hung(scene, max(seconds, _POLICY_AGE + 5), "postgres, all of it")


def supervisor_killed(scene: Scene, seconds: float) -> int:
    """Kill the supervisor, and start the product again."""
    os.kill(scene.product.pid, signal.SIGKILL)
    scene.over_at = time.monotonic()
    scene.restart()
    return 1


# --- Valkey that answers, but not as it should


def configured(scene: Scene, seconds: float, **options: str) -> int:
    """Set options of Valkey for all of the time."""
    with _options(scene, options):
        time.sleep(seconds)
    return 1


@contextmanager
def _options(scene: Scene, options: dict[str, str]) -> Iterator[None]:
    names = {name: name.replace("_", "-") for name in options}
    before = {name: scene.valkey.config_get(names[name])[names[name]] for name in options}
    for name, value in options.items():
        scene.valkey.config_set(names[name], value)
    try:
        yield
    finally:
        for name, value in before.items():
            scene.valkey.config_set(names[name], value)


def evicting(scene: Scene, seconds: float) -> int:
    """Limit Valkey to a tenth less memory than it uses, so that it evicts the least recently used keys."""
    used = int(scene.valkey.info("memory")["used_memory"])
    before = int(scene.valkey.info("stats")["evicted_keys"])
    with _options(scene, {"maxmemory_policy": "allkeys-lru", "maxmemory": str(used * 9 // 10)}):
        time.sleep(seconds)
    return int(scene.valkey.info("stats")["evicted_keys"]) - before


def read_only(scene: Scene, seconds: float) -> int:
    """Make Valkey the replica of a primary that is not there: it reads, and refuses to write."""
    scene.valkey.execute_command("REPLICAOF", "127.0.0.1", "1")
    try:
        time.sleep(seconds)
    finally:
        scene.valkey.execute_command("REPLICAOF", "NO", "ONE")
    return 1


def slow(scene: Scene, seconds: float) -> int:
    """Let Valkey answer after 0.6 s, again and again."""
    until, count, store = time.monotonic() + seconds, 0, scene.valkey
    while time.monotonic() < until:
        with suppress(RedisError):
            store.execute_command("CLIENT", "PAUSE", "600", "ALL")
            count += 1
        time.sleep(0.65)
    return count


def emptied(scene: Scene, seconds: float) -> int:
    """Throw away all that Valkey has, in a moment in which nothing is under way."""
    with scene.quiet():
        scene.valkey.flushall()
    time.sleep(seconds)
    return 1


def record_unreadable(scene: Scene, seconds: float) -> int:
    """Put a record that no settler can read among the others, and drop it once it has been put aside."""
    store: Any = scene.valkey
    store.xadd("outbox", {"worker": "chaos", "record": "{"})
    eventually(lambda: store.xlen("outbox:broken"), patience=20)
    time.sleep(seconds)
    store.delete("outbox:broken")
    return 1


# --- providers


def weather(scene: Scene, seconds: float, script: str) -> int:
    """Let a share of the provider's answers fail in some way."""
    scene.weather(script)
    time.sleep(seconds)
    scene.weather("")
    return 1


def provider_killed(scene: Scene, seconds: float) -> int:
    """Kill the provider every second or two."""
    until, count = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        for pid in scene.product.processes("apps.sandbox", "--port")[-1:]:
            send_signal([pid], signal.SIGKILL)
            count += 1
        time.sleep(scene.chance.uniform(1.0, 2.0))
    eventually(lambda: scene.product.processes("apps.sandbox", "--port"))
    return count


def calm(scene: Scene, seconds: float) -> int:
    """Break nothing."""
    time.sleep(seconds)
    return 0


_ABOUT = "kill -9, again and again: "
FAULTS = [
    Fault("calm", "nothing is broken", calm),
    *(
        Fault(f"{name}-killed", f"{_ABOUT}{victim}", partial(killed, victim=victim))
        for name, victim in {
            "web-worker": "web worker",
            "settler": "settler",
            "celery-worker": "celery worker",
            "beat": "beat",
            "valkey": "valkey",
            "postgres": "postgres",
            "postgres-backend": "postgres backend",
        }.items()
    ),
    Fault(
        "web-server-killed",
        "kill -9: the web process that starts the others",
        partial(killed_once, victim="web server"),
    ),
    Fault("supervisor-killed", "kill -9: the supervisor; the product is started anew", supervisor_killed),
    Fault("valkey-hung", "Valkey stands still", partial(hung, victim="valkey")),
    Fault("postgres-hung", "PostgreSQL stands still", partial(hung, victim="postgres, all of it")),
    Fault(
        "postgres-hung-for-long",
        "PostgreSQL stands still until policies that were read have expired",
        hung_for_long,
    ),
    Fault("settler-hung", "the settler stands still, and goes on later", partial(hung, victim="settler")),
    Fault("web-worker-hung", "a worker stands still, and goes on later", partial(hung, victim="web worker")),
    Fault("valkey-no-replicas", "Valkey refuses to write: NOREPLICAS", partial(configured, min_replicas_to_write="1")),
    Fault("valkey-out-of-memory", "Valkey refuses to write: OOM", partial(configured, maxmemory="1")),
    Fault("valkey-read-only", "Valkey refuses to write: READONLY", read_only),
    Fault("valkey-evicting", "Valkey throws away what it needs room for", evicting),
    Fault("valkey-slow", "Valkey answers after 0.6 s", slow),
    Fault("record-unreadable", "a record that cannot be read waits among the others", record_unreadable),
    Fault("valkey-emptied", "all that Valkey had is gone", emptied),
    Fault("valkey-older", "Valkey comes back with older data", stores.valkey_older),
    Fault(
        "clock-back",
        "Valkey's clock goes back an hour",
        stores.clock_back,
        alone=True,
        settings=stores.faked_valkey,
        missing=stores.no_faketime,
    ),
    Fault(
        "postgres-restored",
        "the database is restored to an older copy, as docs/operations.md says",
        stores.restored,
        alone=True,
    ),
    Fault(
        "disk-full",
        "nothing can be written below the home",
        stores.disk_full,
        alone=True,
        home=stores.small_disk,
        missing=stores.no_mounts,
    ),
    Fault(
        "disk-full-without-room",
        "the same, and no room was kept for records",
        stores.disk_full,
        alone=True,
        home=stores.small_disk,
        settings=stores.without_room,
        missing=stores.no_mounts,
    ),
    Fault("provider-failing", "half of a provider's answers are 500", partial(weather, script="status=500:p=0.5")),
    Fault("provider-cut", "half of a provider's answers are cut off", partial(weather, script="cut=middle:p=0.5")),
    Fault("provider-silent", "a third of its answers never begin", partial(weather, script="hang=head:p=0.33")),
    Fault("provider-killed", "the provider dies", provider_killed),
]

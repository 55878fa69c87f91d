"""The fleet's PostgreSQL as a primary with a synchronous replica, of which the primary is killed.

Plays the part of Patroni or a managed service: it promotes replicas.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.scene import Scene
from tests.support.replicated_postgres import ReplicatedPostgres

# Seconds until the replica is promoted.
_NOTICED = 1.0
# Those that run, by their URL.
_running: dict[str, ReplicatedPostgres] = {}


@contextmanager
def replicated(folder: Path) -> Iterator[dict[str, str]]:
    """Run both for as long as the block; yield the settings of a product that uses them."""
    servers = ReplicatedPostgres(synchronous=True)
    _running[servers.url] = servers
    try:
        yield {"DATABASE_URL": servers.url}
    finally:
        del _running[servers.url]
        servers.close()


def lose_primary(scene: Scene, seconds: float) -> int:
    """Kill the primary for good, and promote the replica."""
    servers = _running[scene.settings["DATABASE_URL"]]
    servers.primary.kill()
    time.sleep(_NOTICED)
    servers.promote()
    scene.over_at = time.monotonic()
    time.sleep(max(0.0, seconds - _NOTICED))
    return 1

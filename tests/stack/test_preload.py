"""Workers are forked from a process that has loaded the application: they share its memory, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.stack.product import Product, eventually

pytestmark = pytest.mark.stack

_LISTENING = "0A"
# Megabytes: without sharing it is some 27, those of libraries.
_LEAST_SHARED = 60


def _sockets(pid: int) -> set[str]:
    """Return the inodes of a process's sockets."""
    links = (os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir())
    return {link.removeprefix("socket:[").rstrip("]") for link in links if link.startswith("socket:")}


def _listening() -> set[str]:
    """Return the inodes of the TCP sockets that listen."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {row[9] for row in rows if row[3] == _LISTENING}


def _shared_megabytes(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    return (sizes["Shared_Clean"] + sizes["Shared_Dirty"]) / 1024


def test_the_process_that_forks_has_no_connections_and_no_threads(product: Product) -> None:
    master, *workers = eventually(lambda: product.processes("gunicorn", "gateway_project.wsgi"))
    assert workers
    assert len(list(Path(f"/proc/{master}/task").iterdir())) == 1
    assert _sockets(master) <= _listening()


def test_workers_share_the_memory_of_the_application(product: Product) -> None:
    _, *workers = eventually(lambda: product.processes("gunicorn", "gateway_project.wsgi"))
    assert min(map(_shared_megabytes, workers)) > _LEAST_SHARED


def test_workers_draw_different_random_numbers(product: Product) -> None:
    ids = {product.chat("hello").json()["id"] for _ in range(20) for _ in product.processes("gunicorn", "wsgi")[1:]}
    assert len(ids) == 20 * len(product.processes("gunicorn", "wsgi")[1:])

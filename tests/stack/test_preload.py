"""Workers and the other roles are forked from a process that has loaded the application: they share its memory, and
nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.stack.product import Product, eventually

pytestmark = pytest.mark.stack

_LISTENING = "0A"
# Megabytes: without sharing it is some 27, those of libraries.
_LEAST_SHARED = 60
# Words of the command lines of the other roles.
_ROLES = [("manage.py", "settler"), ("celery", "worker"), ("celery", "beat"), ("apps.sandbox", "--port")]


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


def test_the_other_roles_share_it_too(product: Product) -> None:
    for words in _ROLES:
        (pid,) = eventually(lambda words=words: product.processes(*words))
        assert _parent(pid) == product.pid
        assert _shared_megabytes(pid) > _LEAST_SHARED


def test_a_role_that_was_killed_starts_again_as_a_program(harmed_product: Product) -> None:
    killed = {words: harmed_product.kill(*words) for words in _ROLES}
    for words, pid in killed.items():
        (other,) = eventually(lambda words=words, pid=pid: set(harmed_product.processes(*words)) - {pid})
        assert _parent(other) == harmed_product.pid
    answer = eventually(
        lambda: [one for one in [harmed_product.chat("hello", "after-a-kill")] if one.status_code == 200]
    )
    assert answer[0].json()["choices"][0]["message"]["content"] == "You said: hello"
    assert harmed_product.log_of("after-a-kill")["requestId"] == "after-a-kill"


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

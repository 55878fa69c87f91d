"""The product on a Valkey that speaks TLS alone: one server, a primary that sentinels name, a cluster.

The system trusts the authority of the certificates through `SSL_CERT_FILE`, as operators configure it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import requests
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from apps.kernel.valkey import redis, redis_cluster
from gateway_project.embedded.child_process import spawn
from tests.stack.books import books_of
from tests.stack.product import Product, eventually, free_port
from tests.support.valkey_cluster import ValkeyCluster
from tests.support.valkey_sentinels import ValkeySentinels, lose_primary
from tests.support.valkey_tls import MISSING, Tls, find_program

PROGRAM = find_program()
pytestmark = [pytest.mark.stack, pytest.mark.skipif(PROGRAM is None, reason=MISSING)]


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    assert PROGRAM is not None
    return Tls(PROGRAM, tmp_path / "certificates")


@pytest.fixture
def started(tmp_path: Path, tls: Tls) -> Iterator[Callable[..., Product]]:
    """Starts a product that trusts the authority."""
    with ExitStack() as ends:

        def start(**settings: str) -> Product:
            made = Product(tmp_path / "home", SSL_CERT_FILE=str(tls.authority), **settings)
            ends.callback(made.stop)
            return made

        yield start


@pytest.fixture
def server(tmp_path: Path, tls: Tls) -> Iterator[str]:
    """One server; its URL without a database."""
    port = free_port()
    words = [str(tls.program), *tls.words(port), "--bind", "127.0.0.1", "--dir", str(tmp_path), "--appendonly", "yes"]
    process = spawn([*words, "--save", ""], output=subprocess.DEVNULL, env={})

    def answers() -> bool:
        with suppress(RedisError), Redis(port=port, **tls.client) as one:
            return bool(one.ping())
        return False

    eventually(answers)
    yield f"rediss://127.0.0.1:{port}"
    process.kill()
    process.wait(60)


@pytest.fixture
def servers(tmp_path: Path, tls: Tls) -> Iterator[ValkeySentinels]:
    made = ValkeySentinels(tmp_path / "valkey", tls)
    yield made
    made.close()


@pytest.fixture
def nodes(tmp_path: Path, tls: Tls) -> Iterator[ValkeyCluster]:
    made = ValkeyCluster(tmp_path / "valkey", tls=tls)
    yield made
    made.close()


def assert_all_works(product: Product) -> None:
    """A request is answered, a cache of its session kept, its record settled, and a task of Celery's done."""
    asked = [f"over-tls-{number}" for number in range(10)]
    assert [product.chat("Hello", one).status_code for one in asked] == [200] * 10
    eventually(lambda: sorted(row["requestId"] for row in product.all_logs()) == sorted(asked))
    books = books_of(product)
    assert (books.left, books.differences, books.tasks_done > 0) == ({}, {}, True)
    assert requests.get(product.url, timeout=60).status_code == 200


def test_one_server(server: str, started: Callable[..., Product]) -> None:
    assert_all_works(started(REDIS_URL=f"{server}/0"))


def test_a_primary_that_sentinels_name(servers: ValkeySentinels, started: Callable[..., Product]) -> None:
    product = started(REDIS_URL=servers.url)
    assert_all_works(product)
    lose_primary(servers)
    eventually(lambda: product.chat("Hello", "after").status_code == 200)
    eventually(lambda: "after" in {row["requestId"] for row in product.all_logs()})


def test_a_cluster(nodes: ValkeyCluster, server: str, started: Callable[..., Product]) -> None:
    assert_all_works(started(REDIS_URL=nodes.url, CELERY_BROKER_URL=f"{server}/0"))


def test_who_is_not_vouched_for_is_not_talked_to(server: str, servers: ValkeySentinels, nodes: ValkeyCluster) -> None:
    patience: dict[str, Any] = {"socket_timeout": 2, "socket_connect_timeout": 2}
    with pytest.raises(RedisConnectionError, match="certificate verify failed"):
        Redis.from_url(f"{server}/0", **patience).ping()
    with pytest.raises(RedisConnectionError):
        redis.connect(servers.url, **patience).ping()
    with pytest.raises(RedisConnectionError):
        redis_cluster.connect(nodes.url, **patience)

"""Connections to hosts, with look-ups that are shared."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import gevent
import pytest

from apps.gateway.upstream import connection_pool
from apps.kernel.concurrency import name_lookup
from apps.kernel.concurrency.name_lookup import TenantLookups
from tests.support.hanging_names import hanging_names, wait_until

Place = tuple[int, int, int, str, tuple[str, int]]


class Names:
    """A name service: what it knows, who was asked for, and whether it hangs."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.asked: list[str] = []
        self.found: list[str] | OSError = ["127.0.0.1"]
        self.seconds = 0.0

    def __call__(self, host: str, port: int, type: int = 0) -> list[Place]:
        self.asked.append(host)
        gevent.sleep(self.seconds)
        if isinstance(self.found, OSError):
            raise self.found
        return [(socket.AF_INET, type, 6, "", (address, self.port)) for address in self.found]


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield server


@pytest.fixture
def names(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    service = Names(listener.getsockname()[1])
    monkeypatch.setattr(name_lookup, "_getaddrinfo", service)
    forget_all()
    yield service
    forget_all()


def forget_all() -> None:
    connection_pool._lookups.clear()
    connection_pool._answers.clear()


def connect(host: str = "api.example.com", timeout: float = 2.0) -> None:
    connection_pool.connect(host, 443, timeout).close()


def test_who_asks_at_the_same_time_or_soon_after_shares_a_look_up(names: Names) -> None:
    names.seconds = 0.05
    gevent.joinall([gevent.spawn(connect) for _ in range(20)], raise_error=True)
    connect()
    assert names.asked == ["api.example.com"]
    connect("other.example.com")
    assert names.asked == ["api.example.com", "other.example.com"]


def test_an_answer_stands_for_ten_seconds(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    connect()
    now = connection_pool.time.monotonic()
    monkeypatch.setattr(connection_pool.time, "monotonic", lambda: now + 9.9)
    connect()
    assert len(names.asked) == 1
    monkeypatch.setattr(connection_pool.time, "monotonic", lambda: now + 10.1)
    connect()
    assert len(names.asked) == 2


def test_a_failure_is_told_to_all_who_wait_and_not_kept(names: Names) -> None:
    names.seconds, names.found = 0.05, socket.gaierror(socket.EAI_NONAME, "unknown")
    tasks = [gevent.spawn(connect) for _ in range(3)]
    gevent.joinall(tasks)
    assert [type(task.exception) for task in tasks] == [socket.gaierror] * 3
    assert len(names.asked) == 1
    names.found = ["127.0.0.1"]
    connect()
    assert len(names.asked) == 2


def test_a_name_service_that_hangs_takes_no_longer_than_a_connection_may(names: Names) -> None:
    names.seconds = 5.0
    with pytest.raises(TimeoutError, match=r"api\.example\.com was not found within 0\.05 s"):
        connect(timeout=0.05)


def test_the_next_address_is_tried(names: Names) -> None:
    names.found = ["127.0.0.2", "127.0.0.1"]
    names_port = names.port
    sock = connection_pool.connect("api.example.com", 443, 2.0)
    assert sock.getpeername() == ("127.0.0.1", names_port)
    sock.close()


def test_a_name_that_leads_nowhere_is_looked_up_again(names: Names) -> None:
    names.found = ["127.0.0.2"]
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            connect()
    assert len(names.asked) == 2


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_address_is_not_looked_up(host: str, names: Names) -> None:
    family: Any = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        connection_pool.connect(host, server.getsockname()[1], 2.0).close()
    assert names.asked == []


def test_names_do_not_pile_up(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_pool, "_MAX_NAMES", 3)
    for number in range(5):
        connect(f"{number}.example.com")
    assert len(connection_pool._lookups) == 2


def test_while_a_name_fails_its_last_addresses_are_used_and_it_is_asked_for_again(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect()
    now = connection_pool.time.monotonic()
    names.found = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    monkeypatch.setattr(connection_pool.time, "monotonic", lambda: now + 3_599)
    connect()
    connect()
    assert len(names.asked) == 3
    monkeypatch.setattr(connection_pool.time, "monotonic", lambda: now + 3_601)
    with pytest.raises(socket.gaierror):
        connect()


def test_while_a_name_service_hangs_the_last_addresses_are_used_and_one_thread_waits_for_it(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_all()
    monkeypatch.setattr(connection_pool, "_STALE_AFTER", 0.01)
    port = listener.getsockname()[1]
    with hanging_names(monkeypatch) as service:
        service.release()
        connection_pool.connect("tar.provider.example", port, 2.0).close()
    with hanging_names(monkeypatch) as service:
        now = connection_pool.time.monotonic()
        with monkeypatch.context() as later:
            later.setattr(connection_pool.time, "monotonic", lambda: now + 60)
            connection_pool.connect("tar.provider.example", port, 2.0).close()
            later.setattr(connection_pool.time, "monotonic", lambda: now + 120)
            connection_pool.connect("tar.provider.example", port, 2.0).close()
        wait_until(lambda: service.hanging)
        assert service.asked == ["tar.provider.example"]
    forget_all()


def test_tenants_names_that_hang_keep_no_provider_waiting(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_all()
    with hanging_names(monkeypatch) as service:
        tenants = TenantLookups(threads=20, share=20)
        asking = [gevent.spawn(tenants.find, f"tar{number}.example", 443, None, 60.0) for number in range(20)]
        wait_until(lambda: len(service.hanging) == 20)
        connection_pool.connect("api.provider.example", listener.getsockname()[1], 60.0).close()
        assert not service.is_released
        service.release()
        gevent.joinall(asking, timeout=60, raise_error=True)
    forget_all()

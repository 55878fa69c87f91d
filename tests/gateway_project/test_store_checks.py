"""A Redis or Valkey that would lose what it is given: asked of a real one before anything is brought up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.management import CommandError, call_command
from redis import Redis

from apps.kernel.redis import client
from gateway_project import redis_checks

NAMES = ("maxmemory-policy", "appendonly", "save")


@pytest.fixture(autouse=True)
def production(settings: Any) -> Iterator[None]:
    """Production, on the tests' own store, which gets back what it was told before."""
    settings.DEVELOPMENT = False
    store: Any = client()
    before = store.config_get(*NAMES)
    tell(appendonly="yes")
    yield
    for name, value in before.items():
        store.config_set(name, value)


def tell(**changes: str) -> None:
    for name, value in changes.items():
        client().config_set(name.replace("_", "-"), value)


def found() -> list[str | None]:
    return [message.id for message in redis_checks.check_store()]


def test_a_store_that_keeps_what_it_is_given_is_fit() -> None:
    assert found() == []


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "allkeys-random"])
def test_an_evicting_store_is_refused(policy: str) -> None:
    tell(maxmemory_policy=policy)
    (message,) = redis_checks.check_store()
    assert (message.id, policy in message.msg, message.is_serious()) == ("gateway.E011", True, True)


def test_a_store_in_memory_alone_is_refused() -> None:
    tell(appendonly="no", save="")
    assert found() == ["gateway.E012"]


def test_snapshots_alone_are_doubtful() -> None:
    tell(appendonly="no", save="3600 1")
    assert found() == ["gateway.W006"]


def test_nothing_is_brought_up_on_an_unfit_store(db: None) -> None:
    tell(maxmemory_policy="allkeys-lru")
    with pytest.raises(CommandError, match="evicts"):
        call_command("prepare")


@pytest.mark.parametrize(
    ("refused", "policy", "expected"),
    [
        ("-config", "noeviction", []),
        ("-config", "allkeys-lfu", ["gateway.E011"]),
        ("-config -info", "allkeys-lfu", ["gateway.W005"]),
    ],
)
def test_a_hosted_store_that_does_not_tell_all_is_asked_otherwise(
    refused: str, policy: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(maxmemory_policy=policy)
    client().execute_command(
        "ACL", "SETUSER", "hosted", "reset", "on", ">hosted", "~*", "&*", "+@all", *refused.split()
    )
    hosted = Redis.from_url(django_settings.REDIS_URL, username="hosted", password="hosted", decode_responses=True)
    monkeypatch.setattr(redis_checks, "client", lambda: hosted)
    monkeypatch.setattr(redis_checks, "servers", lambda: [hosted])
    try:
        assert found() == expected
    finally:
        hosted.close()
        client().execute_command("ACL", "DELUSER", "hosted")


def test_a_store_that_is_away_keeps_nobody_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_checks, "client", lambda: Redis(port=1, socket_connect_timeout=0.1))
    assert found() == []


def test_development_asks_nobody(settings: Any) -> None:
    settings.DEVELOPMENT = True
    tell(maxmemory_policy="allkeys-lru")
    assert found() == []

"""A Redis or Valkey that would lose what it is given: asked of a real one before anything is brought up."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.management import CommandError, call_command
from redis import Redis

from apps.gateway.management.commands import prepare
from apps.kernel.valkey.redis import cache_client, client
from gateway_project.diagnosis import registry, valkey

NAMES = ("maxmemory-policy", "appendonly", "save")


@pytest.fixture(autouse=True)
def production(settings: Any) -> Iterator[None]:
    """Production, on the tests' own store, which gets its earlier settings back."""
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
    return [message.id for message in registry.check_stores()]


def test_a_store_that_keeps_what_it_is_given_is_fit() -> None:
    assert found() == []


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "allkeys-random"])
def test_an_evicting_store_is_refused(policy: str) -> None:
    tell(maxmemory_policy=policy)
    (message,) = registry.check_stores()
    assert (message.id, policy in message.msg, message.is_serious()) == ("gateway.E011", True, True)


def test_a_store_in_memory_alone_is_refused() -> None:
    tell(appendonly="no", save="")
    assert found() == ["gateway.E012"]


@pytest.mark.parametrize("changes", [{"maxmemory": "0"}, {"maxmemory_policy": "noeviction"}])
def test_a_cache_that_grows_without_end_is_doubtful(changes: dict[str, str]) -> None:
    names = ("maxmemory", "maxmemory-policy")
    before: Any = cache_client().config_get(*names)
    for name, value in changes.items():
        cache_client().config_set(name.replace("_", "-"), value)
    try:
        (message,) = registry.check_stores()
    finally:
        for name in names:
            cache_client().config_set(name, before[name])
    assert (message.id, message.is_serious()) == ("gateway.W008", False)
    assert found() == []


@pytest.mark.single_server
def test_a_cache_in_the_memory_of_reservations_is_doubtful(monkeypatch: pytest.MonkeyPatch) -> None:
    # Another database of the same server is the same memory.
    beside = Redis.from_url(str(django_settings.REDIS_URL).replace("db=0", "db=2"), decode_responses=True)
    monkeypatch.setattr(valkey, "cache_servers", lambda: [beside])
    (message,) = registry.check_stores()
    beside.close()
    assert (message.id, message.is_serious()) == ("gateway.W007", False)


def test_snapshots_alone_are_doubtful() -> None:
    tell(appendonly="no", save="3600 1")
    assert found() == ["gateway.W006"]


def test_nothing_is_brought_up_on_an_unfit_store(db: None) -> None:
    tell(maxmemory_policy="allkeys-lru")
    with pytest.raises(CommandError, match="evicts"):
        call_command("prepare")


def bring_up(url: str, settings: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Prepare for a store at an address; return the refusal, and the output before it."""
    settings.REDIS_URL = url
    monkeypatch.setattr(prepare, "_PATIENCE", 0.5)
    monkeypatch.setattr(prepare, "_PAUSE", 0.2)
    monkeypatch.setattr(prepare, "servers_of_money", lambda: [Redis.from_url(url)])
    said = StringIO()
    with pytest.raises(CommandError) as refused:
        call_command("prepare", stderr=said, stdout=said)
    return str(refused.value), said.getvalue()


def test_a_store_that_is_away_is_waited_for_and_then_told_without_its_password(
    db: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal, said = bring_up("redis://:hidden-one@127.0.0.1:1/0", settings, monkeypatch)
    problem = "Error 111 connecting to 127.0.0.1:1. Connection refused."
    first, second = refusal.splitlines()
    assert first == f"Valkey or Redis cannot be reached at redis://127.0.0.1:1/0, which REDIS_URL names: {problem}"
    assert second == (
        "Start it there, or correct REDIS_URL; without REDIS_URL, script/server starts a store of its own."
    )
    assert said == f"waiting for Valkey or Redis at redis://127.0.0.1:1/0 (REDIS_URL): {problem}\n" * 2


def test_a_store_that_refuses_the_password_is_not_waited_for(
    db: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(django_settings.REDIS_URL).partition("://")[2].rpartition("@")[2].partition("?")[0]
    url = str(django_settings.REDIS_URL).replace("://", "://nobody:hidden-one@", 1)
    refusal, said = bring_up(url, settings, monkeypatch)
    assert refusal.startswith("The server at ")
    assert f"{place} refuses the credentials in REDIS_URL: invalid username-password pair" in refusal
    assert ("hidden-one" in refusal, said) == (False, "")


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
    monkeypatch.setattr(valkey, "client", lambda: hosted)
    monkeypatch.setattr(valkey, "servers", lambda: [hosted])
    try:
        assert found() == expected
    finally:
        hosted.close()
        client().execute_command("ACL", "DELUSER", "hosted")


def test_a_store_that_is_away_keeps_nobody_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valkey, "client", lambda: Redis(port=1, socket_connect_timeout=0.1))
    assert found() == []


def test_development_asks_nobody(settings: Any) -> None:
    settings.DEVELOPMENT = True
    tell(maxmemory_policy="allkeys-lru")
    assert found() == []

"""Lookups of names on threads of their own: a tenant whose names hang keeps no other tenant waiting."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import gevent
import pytest

from apps.kernel.concurrency import name_lookup
from apps.kernel.concurrency.name_lookup import LookupsBusy, OperatorLookups, SilentName, TenantLookups
from tests.support.hanging_names import HangingNames, hanging_names, wait_until

OURS, THEIRS = uuid4(), uuid4()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingNames]:
    with hanging_names(monkeypatch) as service:
        yield service


def address_of(found: list[Any]) -> str:
    [(*_, address)] = found
    return str(address[0])


def outcome_of(lookups: TenantLookups, host: str, owner: object, patience: float = 60.0) -> str:
    try:
        return address_of(lookups.find(host, 443, owner, patience))
    except OSError as error:
        return type(error).__name__


def hang(lookups: TenantLookups, names: HangingNames, count: int, until: int) -> list[Any]:
    """Have one tenant look up so many names that hang; return when so many threads are at it."""
    asking = [gevent.spawn(outcome_of, lookups, f"tar{number}.example", THEIRS) for number in range(count)]
    wait_until(lambda: len(names.hanging) == until)
    return asking


def test_forty_names_that_hang_take_the_share_of_one_tenant_and_no_more(names: HangingNames) -> None:
    lookups = TenantLookups(threads=8, share=4)
    asking = hang(lookups, names, 40, until=4)
    assert address_of(lookups.find("pictures.example", 443, OURS)) == "127.0.0.1"
    assert address_of(OperatorLookups(threads=1).find("api.provider.example", 443)) == "127.0.0.1"
    assert len(names.hanging) == 4
    names.release()
    assert {one.get(timeout=60) for one in asking} == {"127.0.0.1"}
    wait_until(lambda: len(lookups._slots) == 0)
    assert lookups._under_way == {}


def test_a_tenant_without_a_turn_is_told_so_and_its_name_is_not_to_blame(names: HangingNames) -> None:
    lookups = TenantLookups(threads=8, share=2)
    asking = hang(lookups, names, 2, until=2)
    with pytest.raises(LookupsBusy):
        lookups.find("pictures.example", 443, THEIRS, patience=0.01)
    names.release()
    gevent.joinall(asking, timeout=60)
    assert address_of(lookups.find("pictures.example", 443, THEIRS)) == "127.0.0.1"


def test_without_a_thread_for_any_tenant_a_name_is_not_to_blame_either(names: HangingNames) -> None:
    lookups = TenantLookups(threads=2, share=2)
    asking = hang(lookups, names, 2, until=2)
    with pytest.raises(LookupsBusy):
        lookups.find("pictures.example", 443, OURS, patience=0.01)
    names.release()
    gevent.joinall(asking, timeout=60)
    wait_until(lambda: outcome_of(lookups, "pictures.example", OURS) == "127.0.0.1")


def test_a_name_that_did_not_answer_is_refused_at_once_until_it_answers(names: HangingNames) -> None:
    lookups = TenantLookups()
    with pytest.raises(SilentName):
        lookups.find("tar.example", 443, THEIRS, patience=0.05)
    # Also to others, and however long they would wait.
    with pytest.raises(SilentName):
        lookups.find("tar.example", 443, OURS, patience=3_600)
    assert names.asked == ["tar.example"]
    names.release()
    wait_until(lambda: outcome_of(lookups, "tar.example", OURS) == "127.0.0.1")


def test_silence_is_remembered_for_ten_seconds(names: HangingNames, monkeypatch: pytest.MonkeyPatch) -> None:
    lookups = TenantLookups()
    names.release()
    failing = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    with monkeypatch.context() as patched:
        patched.setattr(name_lookup, "_getaddrinfo", raising(failing))
        assert outcome_of(lookups, "pictures.example", OURS) == "SilentName"
    now = name_lookup.time.monotonic()
    monkeypatch.setattr(name_lookup.time, "monotonic", lambda: now + 9.9)
    assert (outcome_of(lookups, "pictures.example", OURS), names.asked) == ("SilentName", [])
    monkeypatch.setattr(name_lookup.time, "monotonic", lambda: now + 10.1)
    assert (outcome_of(lookups, "pictures.example", OURS), names.asked) == ("127.0.0.1", ["pictures.example"])


def test_a_name_that_does_not_exist_may_exist_a_moment_later(
    names: HangingNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookups = TenantLookups()
    with monkeypatch.context() as patched:
        patched.setattr(name_lookup, "_getaddrinfo", raising(socket.gaierror(socket.EAI_NONAME, "not known")))
        assert outcome_of(lookups, "pictures.example", OURS) == "gaierror"
    assert outcome_of(lookups, "pictures.example", OURS) == "127.0.0.1"


def test_who_asks_for_the_same_name_at_once_shares_a_lookup(names: HangingNames) -> None:
    lookups = TenantLookups(threads=1, share=1)
    asking = [gevent.spawn(outcome_of, lookups, "tar.example", owner) for owner in (THEIRS, OURS) for _ in range(10)]
    wait_until(lambda: bool(names.hanging))
    names.release()
    assert [one.get(timeout=60) for one in asking] == ["127.0.0.1"] * 20
    assert names.asked == ["tar.example"]


@pytest.mark.parametrize("written", ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "::1"])
def test_an_address_needs_no_thread_however_it_is_written(names: HangingNames, written: str) -> None:
    lookups = TenantLookups(threads=1, share=1)
    hang(lookups, names, 1, until=1)
    assert lookups.find(written, 443, THEIRS, patience=0.0)[0][4][0] in {"127.0.0.1", "::1"}
    assert names.asked == ["tar0.example"]


def raising(error: OSError) -> Any:
    def look_up(*_: Any, **__: Any) -> list[Any]:
        raise error

    return look_up

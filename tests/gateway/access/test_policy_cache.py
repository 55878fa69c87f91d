"""Copies of policies: read once for all, renewed before they expire, served on while the database is away."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier, Event
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import OperationalError

from apps.gateway.access import policy, policy_cache
from apps.gateway.access.policy_cache import NoLongerValid, PolicyCache
from apps.kernel.errors import Overloaded, Unauthenticated
from apps.kernel.postgres import database
from apps.kernel.valkey import generation
from apps.keys.models import ApiKey
from tests.stack.product import eventually
from tests.support.upstream import Caller

ORGANIZATION = uuid4()


@dataclass
class Read:
    """A reading of a key's policy."""

    number: int
    read_at: float
    organization_id: UUID = ORGANIZATION
    is_period_over: bool = False
    is_unusable: bool = False
    generation_stands: bool = True

    def is_current(self) -> bool:
        return self.generation_stands


class Source:
    """The source of policies: counts the readings, and does what a test sets."""

    def __init__(self) -> None:
        self.readings: list[UUID | None] = []
        self.error: Exception | None = None
        self.go_on = Event()
        self.go_on.set()
        self.age = 0.0

    def read(self, _token: str, organization_id: UUID | None) -> Read:
        self.readings.append(organization_id)
        assert self.go_on.wait(60)
        if self.error is not None:
            raise self.error
        return Read(len(self.readings), time.monotonic() - self.age)


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def cache(source: Source) -> PolicyCache[Read]:
    return PolicyCache(source.read)


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch, source: Source) -> None:
    """The database is known to be away."""
    monkeypatch.setattr(database, "is_away", lambda: True)
    source.error = database.DatabaseAwayError("away")


def test_three_hundred_at_once_on_a_cold_key_read_it_once(cache: PolicyCache[Read], source: Source) -> None:
    source.go_on.clear()
    all_there = Barrier(301)

    def ask() -> int:
        all_there.wait(60)
        return cache.find("token").number

    with ThreadPoolExecutor(300) as pool:
        asking = [pool.submit(ask) for _ in range(300)]
        all_there.wait(60)
        eventually(lambda: [len(flight._waiting) for flight in cache._flights._flights.values()] == [299])
        source.go_on.set()
        assert {one.result(60) for one in asking} == {1}
    assert source.readings == [None]


def test_after_a_change_it_is_read_once_more_however_many_notice(cache: PolicyCache[Read], source: Source) -> None:
    old = cache.find("token")
    for _ in range(20):
        cache.invalidate("token", old)
        assert cache.find("token").number == 2
    assert len(source.readings) == 2


def test_a_copy_in_use_is_renewed_before_it_expires(cache: PolicyCache[Read], source: Source) -> None:
    source.age = policy_cache.RENEWED_AFTER + 1
    assert cache.find("token").number == 1
    source.age = 0.0
    # A caller that finds it old enough gets the present copy, and has it renewed.
    assert cache.find("token").number == 1
    assert cache.find("token").number == 2
    assert cache.find("token").number == 2
    # Whose key it is is known: that need not be asked first.
    assert source.readings == [None, ORGANIZATION]


def test_a_copy_that_cannot_be_renewed_is_tried_now_and_then(cache: PolicyCache[Read], source: Source) -> None:
    source.age = policy_cache.RENEWED_AFTER + 1
    cache.find("token")
    source.error = OperationalError("statement timeout")
    assert [cache.find("token").number for _ in range(50)] == [1] * 50
    assert len(source.readings) == 2


def test_an_expired_copy_is_not_trusted_while_the_database_answers(cache: PolicyCache[Read], source: Source) -> None:
    source.age = policy_cache.MAX_AGE + 1
    assert cache.find("token").number == 1
    assert cache.find("token").number == 2


@pytest.mark.usefixtures("away")
def test_while_the_database_is_away_nobody_waits_for_it(source: Source) -> None:
    source.error, source.age = None, policy_cache.MAX_AGE + 600
    cache: PolicyCache[Read] = PolicyCache(source.read)
    cache.find("token")
    source.error = database.DatabaseAwayError("away")
    assert [cache.find("token").number for _ in range(50)] == [1] * 50
    assert len(source.readings) == 1


def test_the_one_who_finds_out_that_it_is_away_serves_on(cache: PolicyCache[Read], source: Source) -> None:
    source.age = policy_cache.MAX_AGE + 1
    cache.find("token")
    source.error = OperationalError("refused")
    assert cache.find("token").number == 1
    assert len(source.readings) == 2


@pytest.mark.usefixtures("away")
def test_beyond_what_the_operator_allows_it_does_not(source: Source, settings: Any) -> None:
    settings.POLICY_MAX_STALE = 300
    source.error, source.age = None, 301.0
    cache: PolicyCache[Read] = PolicyCache(source.read)
    cache.find("token")
    source.error = database.DatabaseAwayError("away")
    with pytest.raises(Overloaded) as refused:
        cache.find("token")
    assert (refused.value.status, refused.value.code, refused.value.retry_after) == (503, "overloaded", 2.0)


def test_a_copy_whose_generation_has_passed_is_never_served(cache: PolicyCache[Read], source: Source) -> None:
    """A user has revoked something: until the change can be read, no caller is let in."""
    known = cache.find("token")
    cache.invalidate("token", known)
    source.error = OperationalError("refused")
    with pytest.raises(Overloaded):
        cache.find("token")


def test_a_copy_that_is_found_to_have_passed_meanwhile_is_not_served(cache: PolicyCache[Read], source: Source) -> None:
    source.age = policy_cache.MAX_AGE + 1
    known = cache.find("token")
    source.go_on.clear()
    source.error = OperationalError("refused")
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(cache.find, "token")
        eventually(lambda: len(source.readings) == 2)
        cache.invalidate("token", known)
        source.go_on.set()
        with pytest.raises(Overloaded):
            asking.result(5)


def test_a_refusing_copy_of_an_earlier_generation_is_read_anew(cache: PolicyCache[Read], source: Source) -> None:
    first = cache.find("token")
    first.is_unusable = True
    assert cache.find("token").number == 1
    first.generation_stands = False
    assert cache.find("token").number == 2


def test_nobody_can_ask_again_and_again_for_a_key_that_is_not_there(
    cache: PolicyCache[Read], source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.error = NoLongerValid()
    for _ in range(50):
        with pytest.raises(Unauthenticated):
            cache.find("token")
    assert len(source.readings) == 1
    monkeypatch.setattr(policy_cache, "UNKNOWN_FOR", 0.0)
    source.error = None
    assert cache.find("token").number == 2


def test_refusals_push_no_policy_out_and_are_bounded(
    cache: PolicyCache[Read], source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_cache, "MAX_REFUSALS", 5)
    monkeypatch.setattr(policy_cache, "MAX_POLICIES", 2)
    cache.find("good")
    source.error = NoLongerValid()
    for number in range(20):
        with pytest.raises(Unauthenticated):
            cache.find(f"guess {number}")
    assert (len(cache._refusals), len(cache._copies)) == (5, 1)
    assert cache.find("good").number == 1


def test_a_key_that_is_switched_off_and_on_again_works_at_once(caller: Caller, django_assert_num_queries: Any) -> None:
    def switch(status: str) -> None:
        ApiKey.objects.filter(pk=caller.key.pk).update(status=status)
        generation.bump(generation.organization_scope(caller.organization_id))

    switch("inactive")
    with pytest.raises(Unauthenticated):
        policy.find_policy(caller.token)
    # Its generation tells that nothing has changed, whatever the clock says.
    (refusal,) = policy._cache._refusals.values()
    refusal.at -= 2
    with django_assert_num_queries(0), pytest.raises(Unauthenticated):
        policy.find_policy(caller.token)
    switch("active")
    refusal.at -= 2
    assert policy.find_policy(caller.token).api_key_id == caller.key.id

"""The cache store: bytes by organization and in all, the oldest dropped first, however entries come and go."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings as django_settings
from redis.exceptions import RedisError

from apps.kernel.valkey.cache_store import ENTRY_OVERHEAD, CacheShare
from apps.kernel.valkey.redis import cache_client, client
from tests.stack.product import eventually

KIB, MIB = 1024, 1024 * 1024


@pytest.fixture
def share() -> CacheShare:
    """The part of an organization that may keep 100 KiB."""
    return CacheShare(uuid4(), 100 * KIB)


def size_of(name: str, value: bytes) -> int:
    """Return what an entry counts."""
    return len(value) + 3 * len(name) + ENTRY_OVERHEAD


def names_of(share: CacheShare) -> list[str]:
    """Return the names of the organization's entries that are there."""
    index = {"sizes", "ages", "ends"}
    return sorted({key.removeprefix(share.key("")) for key in cache_client().keys(share.key("*"))} - index)


def total_of(share: CacheShare) -> int:
    """Return the bytes of all organizations in the same part."""
    return int(cache_client().zscore(share._accounts, "") or 0)


def test_values_are_read_as_they_were_kept_and_counted_to_the_byte(share: CacheShare) -> None:
    assert share.keep([("a", b"1" * 10), ("bb", b"2" * 20)], 60) == 2
    assert (share.read("a"), share.read("none"), share.has("bb"), share.has("none")) == ("1" * 10, None, True, False)
    assert share.read_all(["bb", "none", "a"]) == ["2" * 20, None, "1" * 10]
    assert share.used_bytes == total_of(share) == size_of("a", b"1" * 10) + size_of("bb", b"2" * 20)
    assert 0 < cache_client().ttl(share.key("a")) <= 60
    share.keep([("a", b"1")], 60)
    assert share.used_bytes == size_of("a", b"1") + size_of("bb", b"2" * 20)
    share.forget("a", "none")
    assert (names_of(share), share.used_bytes) == (["bb"], size_of("bb", b"2" * 20))
    share.forget("bb")
    assert (share.used_bytes, total_of(share), cache_client().keys("*")) == (0, 0, [])


def test_the_oldest_goes_first_and_others_keep_theirs(share: CacheShare) -> None:
    other = CacheShare(uuid4(), 100 * KIB)
    other.keep([("theirs", b"x" * 10 * KIB)], 60)
    for number in range(12):
        share.keep([(f"{number:02}", b"y" * 24 * KIB)], 60)
        assert share.used_bytes <= share.max_bytes
    assert names_of(share) == ["08", "09", "10", "11"]
    assert (names_of(other), other.used_bytes) == (["theirs"], size_of("theirs", b"x" * 10 * KIB))


def test_an_entry_that_is_kept_again_is_a_new_one(share: CacheShare) -> None:
    for name in ("a", "b", "c", "a", "d"):
        share.keep([(name, b"y" * 30 * KIB)], 60)
    assert names_of(share) == ["a", "c", "d"]


def test_what_is_larger_than_the_share_is_not_kept_and_drops_nothing_else(share: CacheShare) -> None:
    share.keep([("a", b"1"), ("b", b"2")], 60)
    assert share.keep([("a", b"y" * 100 * KIB), ("c", b"3")], 60) == 1
    # Its former value would be a wrong one.
    assert names_of(share) == ["b", "c"]
    assert CacheShare(share.organization_id, 0).keep([("d", b"4")], 60) == 0


def test_all_together_are_bounded_by_what_the_largest_has(share: CacheShare, settings: Any) -> None:
    settings.CACHE_BYTES = 150 * KIB * (16 if django_settings.CACHE_URL.startswith("redis+cluster") else 1)
    large = neighbour_of(share, 140 * KIB)
    small = neighbour_of(share, 140 * KIB)
    small.keep([("small", b"x" * 10 * KIB)], 60)
    for number in range(4):
        large.keep([(f"{number}", b"y" * 30 * KIB)], 60)
    share.keep([("a", b"z" * 30 * KIB)], 60)
    assert (names_of(large), names_of(small), names_of(share)) == (["1", "2", "3"], ["small"], ["a"])
    assert total_of(share) == large.used_bytes + small.used_bytes + share.used_bytes <= 150 * KIB


def test_what_has_expired_is_counted_no_more(share: CacheShare) -> None:
    share.keep([("short", b"x" * 60 * KIB)], 1)
    share.keep([("long", b"y" * 20 * KIB)], 60)
    eventually(lambda: not share.has("short"))
    share.keep([("new", b"z" * 60 * KIB)], 60)
    assert names_of(share) == ["long", "new"]
    assert share.used_bytes == size_of("long", b"y" * 20 * KIB) + size_of("new", b"z" * 60 * KIB)


class TestLists:
    """Lists, which grow item by item."""

    def test_items_are_read_in_order_and_last_from_the_latest(self, share: CacheShare) -> None:
        assert share.append("log", b"0", 60, is_first=True)
        assert share.append("log", b"1", 600, is_first=False)
        assert share.read_items("log", 0, -1) == ["0", "1"]
        assert 60 < cache_client().ttl(share.key("log")) <= 600
        assert share.append("log", b"new", 60, is_first=True)
        assert share.read_items("log", 0, -1) == ["new"]

    def test_one_that_is_gone_is_not_begun_in_its_middle(self, share: CacheShare) -> None:
        share.append("log", b"0", 60, is_first=True)
        cache_client().delete(share.key("log"))
        assert not share.append("log", b"1", 60, is_first=False)
        assert (names_of(share), share.used_bytes) == ([], 0)

    def test_one_that_outgrows_the_share_goes_as_a_whole(self, share: CacheShare) -> None:
        share.append("log", b"x" * 60 * KIB, 60, is_first=True)
        assert not share.append("log", b"x" * 60 * KIB, 60, is_first=False)
        assert (names_of(share), share.used_bytes) == ([], 0)

    def test_one_that_is_written_outlives_what_is_older(self, share: CacheShare) -> None:
        share.append("log", b"x" * 20 * KIB, 60, is_first=True)
        share.keep([("answer", b"y" * 30 * KIB)], 60)
        assert share.append("log", b"x" * 60 * KIB, 60, is_first=False)
        assert (names_of(share), len(share.read_items("log", 0, -1))) == (["log"], 2)

    def test_one_that_is_prolonged_is_counted_as_long_as_it_is_there(self, share: CacheShare) -> None:
        share.append("log", b"x", 1, is_first=True)
        used = share.used_bytes
        share.prolong(["log", "none"], 600)
        ends = cache_client().zscore(share.key("ends"), "log")
        assert isinstance(ends, float)
        assert ends / 1e6 > time.time() + 500
        assert (cache_client().ttl(share.key("log")) > 500, share.used_bytes) == (True, used)


class TestEviction:
    """A server that evicts whichever key it likes."""

    @pytest.mark.parametrize("lost", ["sizes", "ages", "ends", "accounts"])
    def test_an_index_that_was_evicted_in_part_begins_again(self, share: CacheShare, lost: str) -> None:
        share.keep([("a", b"x" * 30 * KIB), ("b", b"x" * 30 * KIB)], 60)
        cache_client().delete(share._accounts if lost == "accounts" else share.key(lost))
        share.keep([("c", b"y")], 60)
        assert share.used_bytes == total_of(share) == size_of("c", b"y")
        for number in range(20):
            share.keep([(f"{number}", b"x" * 30 * KIB)], 60)
        assert share.used_bytes == total_of(share) <= share.max_bytes

    def test_an_organization_whose_index_is_gone_gives_its_room_back(self, share: CacheShare, settings: Any) -> None:
        settings.CACHE_BYTES = 150 * KIB * (16 if django_settings.CACHE_URL.startswith("redis+cluster") else 1)
        gone = neighbour_of(share, 140 * KIB)
        gone.keep([("a", b"x" * 130 * KIB)], 60)
        cache_client().delete(*[gone.key(name) for name in ("sizes", "ages", "ends", "a")])
        share.keep([("b", b"y" * 50 * KIB)], 60)
        assert (gone.used_bytes, names_of(share), total_of(share)) == (0, ["b"], share.used_bytes)


def test_all_that_one_keeps_goes_and_nothing_else(share: CacheShare) -> None:
    other = CacheShare(uuid4(), 100 * KIB)
    other.keep([("theirs", b"x")], 60)
    roomy = CacheShare(share.organization_id, 10 * MIB)
    roomy.keep([(f"{number}", b"x") for number in range(2_500)], 60)
    roomy.append("log", b"x", 60, is_first=True)
    assert len(names_of(share)) == 2_501
    share.forget_all()
    assert (names_of(share), share.used_bytes, names_of(other)) == ([], 0, ["theirs"])


def test_the_store_of_money_is_not_touched(share: CacheShare) -> None:
    before = client().keys("*")
    share.keep([("a", b"x" * KIB)], 60)
    share.append("log", b"x", 60, is_first=True)
    assert client().keys("*") == before


def test_an_outage_is_told(share: CacheShare, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any, **__: Any) -> Any:
        raise RedisError("away")

    monkeypatch.setattr(cache_client(), "execute_command", away)
    with pytest.raises(RedisError):
        share.read("a")
    with pytest.raises(RedisError):
        share.keep([("a", b"x")], 60)


def neighbour_of(share: CacheShare, max_bytes: int) -> CacheShare:
    """Return another organization's share in the same part of the store."""
    while True:
        other = CacheShare(uuid4(), max_bytes)
        if other._accounts == share._accounts:
            return other

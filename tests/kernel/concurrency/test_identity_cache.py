"""Values computed from an object: computed once, never mistaken for another object's, and kept within a bound."""

from __future__ import annotations

from apps.kernel.concurrency.identity_cache import IdentityCache


def test_each_object_is_asked_for_once_and_equal_ones_are_two() -> None:
    asked: list[list[int]] = []

    def total(numbers: list[int]) -> int:
        asked.append(numbers)
        return sum(numbers)

    cache = IdentityCache(total)
    first, second = [1, 2], [1, 2]
    assert [cache(first), cache(first), cache(second)] == [3, 3, 3]
    assert [numbers is first for numbers in asked] == [True, False]


def test_an_object_that_is_gone_never_lends_its_value_to_the_next_at_its_place() -> None:
    cache: IdentityCache[list[int], int] = IdentityCache(sum)
    assert [cache([number]) for number in range(1_000)] == list(range(1_000))


def test_no_more_is_kept_than_may_be() -> None:
    cache: IdentityCache[list[int], int] = IdentityCache(sum, most=3)
    kept = [[number] for number in range(10)]
    for numbers in kept:
        cache(numbers)
        assert len(cache._known) <= 3
    assert [cache(numbers) for numbers in kept] == list(range(10))

"""Slots by owner: who gets one, who waits, and that nothing is left of those who are done."""

from __future__ import annotations

import gevent
import pytest

from apps.kernel.concurrency.fairness import OwnerSlots
from apps.kernel.errors import RateLimited


def test_an_owner_gets_so_many_and_another_its_own() -> None:
    slots = OwnerSlots(2)
    assert [slots.acquire("a", 0) for _ in range(3)] == [True, True, False]
    assert slots.acquire("b", 0)
    slots.release("a")
    assert slots.acquire("a", 0)


def test_who_waits_in_line_gets_the_slot_that_is_given_back() -> None:
    slots = OwnerSlots(1)
    assert slots.acquire("a", 0)
    waiting = gevent.spawn(slots.acquire, "a", 60.0)
    gevent.sleep(0)
    slots.release("a")
    assert waiting.get(timeout=60) is True


def test_a_refusal_says_why_and_the_block_is_not_run() -> None:
    slots, ran = OwnerSlots(1), False
    with slots.slot("a", 0, "unused"), pytest.raises(RateLimited) as refused, slots.slot("a", 0, "Too many at once"):
        ran = True
    assert (refused.value.message, refused.value.code, ran) == ("Too many at once", "too_many_outside_calls", False)
    assert refused.value.retry_after == 2.0


def test_nothing_is_kept_of_an_owner_that_holds_nothing() -> None:
    slots = OwnerSlots(1)
    with slots.slot("a", 0, ""):
        assert (slots.acquire("a", 0), len(slots)) == (False, 1)
    with pytest.raises(ZeroDivisionError), slots.slot("a", 0, ""):
        _ = 1 // 0
    assert len(slots) == 0


def test_who_is_ended_while_waiting_leaves_the_line() -> None:
    slots = OwnerSlots(1)
    with slots.slot("a", 0, ""):
        waiting = gevent.spawn(slots.acquire, "a", 60.0)
        gevent.sleep(0)
        waiting.kill()
    assert len(slots) == 0

"""Whose turn it is in a queue that is served in rotation by client."""

from __future__ import annotations

import pytest

from apps.kernel.concurrency.fairness import FairQueue


def test_one_of_each_client_is_taken_and_then_another_of_each() -> None:
    queue: FairQueue[str] = FairQueue()
    for client, item in (("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1"), ("c", "c2")):
        queue.put(client, item)
    assert (queue.peek(), len(queue)) == ("a1", 6)
    assert [queue.take() for _ in range(len(queue))] == ["a1", "b1", "c1", "a2", "c2", "a3"]
    assert len(queue) == 0
    with pytest.raises(StopIteration):
        queue.take()
    with pytest.raises(StopIteration):
        queue.peek()


def test_what_is_ahead_of_a_client_is_as_many_rounds_as_it_waits_for_itself() -> None:
    queue: FairQueue[int] = FairQueue()
    assert queue.count_ahead_of("a") == 0
    for number in range(5):
        queue.put("a", number)
    queue.put("b", 0)
    assert (queue.count_ahead_of("a"), queue.count_ahead_of("b"), queue.count_ahead_of("c")) == (6, 4, 2)

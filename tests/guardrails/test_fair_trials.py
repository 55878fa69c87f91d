"""Dry runs of several organizations: one's crowd leaves the thread that does them to another."""

from __future__ import annotations

import pytest

from apps.guardrails import trial
from apps.guardrails.trial import try_guardrails
from apps.kernel.errors import RateLimited
from tests.support.cast import World, world

__all__ = ["world"]


def test_a_crowd_of_texts_keeps_anothers_waiting_for_two(world: World) -> None:
    for _ in range(2):
        trial._TRIED.take(world.acme.id)
    try:
        with pytest.raises(RateLimited) as refused:
            try_guardrails(world.acme.id, "hello")
        assert refused.value.code == "concurrency_exceeded"
        assert try_guardrails(world.elsewhere.id, "hello").passed
    finally:
        for _ in range(2):
            trial._TRIED.give_back(world.acme.id)
    assert [try_guardrails(world.acme.id, "hello").passed for _ in range(3)] == [True] * 3

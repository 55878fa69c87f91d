"""The OpenAPI document is made a piece at a time: a worker answers others meanwhile, and makes it once."""

from __future__ import annotations

import gevent
import pytest

from gateway_project.openapi import document as module


@pytest.fixture
def unmade(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Clear the cached document; return a list that grows each time the document is made."""
    module._document.cache_clear()
    times: list[None] = []
    read = module._by_hand

    def count() -> module.Record:
        times.append(None)
        return read()

    monkeypatch.setattr(module, "_by_hand", count)
    return times


def test_others_have_a_turn_before_each_operation_and_file(unmade: list[None]) -> None:
    turns = 0

    def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            gevent.sleep(0)

    other = gevent.spawn(take_turns)
    try:
        module.document()
    finally:
        other.kill()
    assert len(unmade) == 1
    assert turns >= 100


def test_who_asks_meanwhile_gets_the_same(unmade: list[None]) -> None:
    found = [gevent.spawn(module.document) for _ in range(3)]
    gevent.joinall(found, raise_error=True)
    assert found[0].value is found[1].value is found[2].value
    assert len(unmade) == 1

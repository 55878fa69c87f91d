"""Work in small pieces."""

from __future__ import annotations

import time

import pytest

from apps.kernel.concurrency.background import throttled


def test_everything_comes_in_order_with_pauses_between(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    assert list(throttled(range(20))) == list(range(20))
    assert pauses == [50e-6, 50e-6]


def test_a_few_are_not_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", pytest.fail)
    assert list(throttled("abc")) == ["a", "b", "c"]

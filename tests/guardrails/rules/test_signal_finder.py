"""Signals are found by their heads: few patterns are tried, and ties between them have one order."""

from __future__ import annotations

from typing import Any

import pytest

from apps.guardrails.matching import signal_finder
from apps.guardrails.matching.attack_signals import SignalTable


def table(*forms: tuple[str, str]) -> SignalTable:
    """Return a table of forms, each with its kind, that all weigh the same."""
    shapes = [{"kind": kind, "weight": 0.5, "forms": [form]} for kind, form in forms]
    return SignalTable({"orders": [], "words": {"en": {"none": "none"}}, "shape": shapes})


def test_only_patterns_of_the_head_that_stands_there_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    original = signal_finder.match_pattern

    def counted(pattern: Any, utf8: bytes, head: int) -> Any:
        tried.append(pattern.kind)
        return original(pattern, utf8, head)

    monkeypatch.setattr(signal_finder, "match_pattern", counted)
    many = table(*((f"kind{number}", f"<head{number}> (?:tail|end)") for number in range(300)))
    found = many.signals(b"a head7 tail and head71, head8 tale, head299 end")
    assert [(signal.kind, signal.start, signal.end) for signal in found] == [("kind7", 2, 12), ("kind299", 37, 48)]
    assert tried == ["kind7", "kind299"]


def test_signals_at_one_head_come_by_where_their_shortest_match_ends() -> None:
    longer, shorter, middle = ("a", "<order> one two three"), ("b", "<order> one"), ("c", "<order> one two")
    found = table(longer, shorter, middle).signals(b"an order one two three")
    assert [signal.kind for signal in found] == ["b", "c", "a"]
    assert {signal.start for signal in found} == {3}


def test_patterns_of_one_table_beyond_64_come_after_those_before() -> None:
    others = [(f"other{number}", f"<nothing{number}>") for number in range(70)]
    found = table(("long", "<order> one two"), *others, ("short", "<order> one")).signals(b"order one two")
    assert [signal.kind for signal in found] == ["long", "short"]

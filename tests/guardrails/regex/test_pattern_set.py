"""Patterns that are searched for together, in several automata where they are many."""

from __future__ import annotations

import pytest

from apps.guardrails.regex.re2_patterns import PatternSet

PATTERNS = [rf"word{number}\b" for number in range(100)]


@pytest.mark.parametrize(
    ("anchored", "text", "found"),
    [
        (False, b"word0 word39, word40 and word99", [0, 39, 40, 99]),
        (True, b"word40 word41", [40]),
        (False, b"nothing", []),
    ],
)
def test_every_pattern_has_its_own_index_whichever_automaton_it_is_in(
    anchored: bool, text: bytes, found: list[int]
) -> None:
    assert sorted(PatternSet(PATTERNS, anchored=anchored).matching(text)) == found
    assert list(PatternSet([]).matching(text)) == []

"""Required literals: every match of a pattern has one of each clause, and a clause tells as much as it can."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
import re2

from apps.guardrails.regex.re2_patterns import PatternFilter, known_patterns
from apps.guardrails.regex.required_literals import fold, required_literals
from apps.guardrails.rules import system_rules
from bench.crafted import matching_text


@pytest.mark.parametrize(
    ("pattern", "clauses"),
    [
        ("AKIA[0-9A-Z]{16}", ["akia"]),
        ("(?i)API[_-]?key *= *[0-9a-f]{32}", ["api-key api_key apikey"]),
        ("[Aa]pi(?i:key)|Api", ["api"]),
        (r"\b(?:gh[pousr]|glpat)_[0-9A-Za-z]{36}.{0,9}token", ["token", "gho_ ghp_ ghr_ ghs_ ghu_ glpat_"]),
        ("(?:ab){2}[cd]?e", ["ababce ababde ababe"]),
        ("[0-9]{4}@[a-z]+", ["@"]),
        ("confidential information", ["confidenti"]),
        ("(?i)ß7|й7", ["ß7 Й7 й7 ẞ7"]),
        ("ключ|key", ["key ключ"]),
        ("(?:key)*[0-9]+|x", []),
        ("(?i)ſecret", ["secret"]),
        (r"\w+", []),
        ("", []),
    ],
)
def test_clauses_of_a_pattern(pattern: str, clauses: list[str]) -> None:
    assert [" ".join(sorted(clause)) for clause in required_literals(pattern)] == clauses


def texts_of(pattern: str, chosen: random.Random) -> Iterable[bytes]:
    """Return texts that a pattern matches."""
    for _ in range(5):
        utf8 = matching_text(pattern, chosen).encode()
        if re2.compile(pattern).search(utf8) is not None:
            yield utf8


def test_every_match_of_a_rule_has_the_literals_of_its_pattern() -> None:
    assert system_rules()
    chosen = random.Random(1)
    patterns = known_patterns()
    tried = 0
    for pattern in patterns:
        clauses = required_literals(pattern)
        for utf8 in texts_of(pattern, chosen):
            tried += 1
            folded = fold(utf8)
            assert all(any(literal.encode() in folded for literal in clause) for clause in clauses), (pattern, utf8)
    assert len(patterns) > 1500
    assert tried > 2 * len(patterns)


def test_a_filter_passes_only_patterns_whose_literals_are_all_there() -> None:
    narrowed = PatternFilter(["secret.{0,9}token", "token", r"\d{3}"])
    assert narrowed.candidates(b"the token") == [1]
    assert narrowed.candidates(b"a Secret, and its TOKEN: 123") == [0, 1, 2]

"""Required literals: every match of a pattern has one of each clause, and a clause tells as much as it can."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterable

import pytest
import re2

from apps.guardrails.regex.re2_patterns import PatternFilter, known_patterns
from apps.guardrails.regex.required_literals import MatchReach, needs_more_than_ascii, required_literals
from apps.guardrails.rules import system_rules
from bench.crafted import matching_text


@pytest.mark.parametrize(
    ("pattern", "clauses"),
    [
        ("AKIA[0-9A-Z]{16}", ["akia"]),
        ("(?i)API[_-]?key *= *[0-9a-f]{32}", ["api-key api_key apikey"]),
        ("[Aa]pi(?i:key)|Api", ["api"]),
        (
            r"\b(?:gh[pousr]|glpat)_[0-9A-Za-z]{36}.{0,9}token",
            ["token", "\0gho_ \0ghp_ \0ghr_ \0ghs_ \0ghu_ \0glpat_"],
        ),
        (r"(?i)(?:\b|_)pw\b|\bpin\b", ["\0pin\0 \0pw\0 _pw\0"]),
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


def test_every_match_of_a_rule_is_where_the_literals_of_its_pattern_say() -> None:
    assert system_rules()
    chosen = random.Random(1)
    patterns = known_patterns()
    tried = 0
    for pattern in patterns:
        narrowed, compiled = PatternFilter([pattern] if required_literals(pattern) else []), re2.compile(pattern)
        for utf8 in texts_of(pattern, chosen):
            tried += 1
            # With white space around every second text, its match may be another.
            text = b"\n" * 400 + utf8 + b"\n" * 400 if tried % 2 else utf8
            match = compiled.search(text)
            if match is not None and required_literals(pattern):
                windows = narrowed.windows(text).get(0, [])
                assert any(start <= match.start() and match.end() <= end for start, end in windows), (pattern, utf8)
    assert len(patterns) > 1500
    assert tried > 2 * len(patterns)


@pytest.mark.parametrize(
    ("pattern", "text", "windows"),
    [
        # As far as a match reaches before and behind the literal; near ones are one.
        (r"\d{2}key[a-z]{3}", "_" * 90 + "12keyabc" + "_" * 90, [(90, 98)]),
        (r"x?key(?:key)?", "_____key__key____________key", [(1, 17), (21, 28)]),
        # A literal at the beginning or the end of a word.
        (r"\bkey\b", "keys monkey key", [(12, 15)]),
        (r"\bmy\b-\bkey\b", "my-keys my-key", [(8, 14)]),
        # A match without an end ends with its line or its word, at the latest.
        (r"key[^\n]*", "a key: b\nc", [(2, 8)]),
        (r"[a-z]+@[a-z]+", "to ann@post and to ben@post\n", [(3, 11), (19, 27)]),
        (r"key\s+\w+", "a key b", [(2, 7)]),
        # Letters beyond ASCII take up to four bytes.
        (r".{2}key", "aßßkey", [(0, 8)]),
        # Every match needs a digit.
        (r"key \w{0,3}\d", "key abc, key ab1", [(9, 16)]),
        # Folding makes a letter shorter.
        (r"(?i)key", "\u212aey", [(0, 5)]),
        (r"key", "nothing", None),
    ],
)
def test_windows_hold_all_matches(pattern: str, text: str, windows: list[tuple[int, int]] | None) -> None:
    assert PatternFilter([pattern]).windows(text.encode()).get(0) == windows


@pytest.mark.parametrize("stop", [b"", b" ", b"\n"])
def test_windows_of_many_places_are_those_of_each_place_joined(stop: bytes) -> None:
    chosen = random.Random(8)
    for _ in range(200):
        text = "".join(chosen.choices(["key", "a", " ", "\n"], [3, 9, 3, 2], k=60)).encode()
        places = [found.start() for found in re.finditer(rb"key", text)]
        reach = MatchReach(chosen.choice([0, 4, math.inf]), chosen.choice([3, 9, math.inf]), stop, 0, False)
        joined: list[tuple[int, int]] = []
        for start, end in sorted(window for at in places for window in reach.windows([at], text)):
            if joined and start <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(joined[-1][1], end))
            else:
                joined.append((start, end))
        assert (reach.windows(places, text) if places else []) == joined, (text, reach)


def test_a_filter_passes_only_patterns_whose_literals_are_all_near() -> None:
    narrowed = PatternFilter(["secret.{0,9}token", "token", r"\d{3}"])
    assert list(narrowed.windows(b"the token")) == [1]
    assert list(narrowed.windows(b"a Secret, its TOKEN: 123")) == [0, 1, 2]
    # Both literals, but further apart than a match reaches.
    assert list(narrowed.windows(b"a Secret, and its TOKEN: 123")) == [1, 2]


@pytest.mark.parametrize(
    ("pattern", "needs"),
    [
        ("[é-ü]{2}", True),
        ("a?é", True),
        ("é|ü", True),
        ("(?:é|a)", False),
        ("é?", False),
        # The long s is a letter of ASCII in another case.
        ("(?i)\u017f", False),
        ("[^a]", False),
    ],
)
def test_a_pattern_may_need_more_than_ascii(pattern: str, needs: bool) -> None:
    assert needs_more_than_ascii(pattern) is needs


def test_patterns_that_need_more_than_ascii_are_found_beside_others() -> None:
    filtered = PatternFilter(["[à-ü]{2}", "[0-9]{2}"])
    assert filtered.windows(b"ab 12") == {1: [(0, 5)]}
    assert filtered.windows("éé".encode()) == {0: [(0, 4)]}
    assert filtered.windows("éé 12".encode()) == {0: [(0, 7)], 1: [(0, 7)]}

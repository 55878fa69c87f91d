"""No expression and no text holds a worker: matches, windows and time are bounded, and nothing is lost by it."""

from __future__ import annotations

import re

import pytest
import re2
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.guardrails.regex import re2_matcher
from apps.guardrails.regex.re2_matcher import (
    MAX_MATCH_BYTES,
    MAX_PROGRAM_SIZE,
    PatternGroup,
    Re2Match,
    TimeBudget,
    compile_expression,
    matcher_options,
    program_size,
)
from tests.support.property_examples import examples


def group(*patterns: str) -> PatternGroup:
    """Return expressions compiled together."""
    return PatternGroup([re2.compile(pattern, matcher_options()) for pattern in patterns])


def find(patterns: list[str], text: str, most: int = 1000, seconds: float = 60) -> list[Re2Match]:
    """Return all matches."""
    return list(group(*patterns).find(text.encode(), most, TimeBudget(seconds)))


@given(st.text("ab c", max_size=60), st.sampled_from(["a+", "ab|a", "b c?", r"\ba", "(?s)a.b", "[ab]{3}", "c$"]))
@settings(max_examples=examples(300), deadline=None)
def test_matches_are_those_of_any_engine(text: str, pattern: str) -> None:
    assert [(m.start, m.end) for m in find([pattern], text)] == [m.span() for m in re.finditer(pattern, text)]


@pytest.mark.parametrize("at", [0, 4000, 6143, 6144, 8190, 12_287, 20_000, 50_000])
@pytest.mark.parametrize("length", [1, 10, MAX_MATCH_BYTES])
def test_windows_lose_no_match(at: int, length: int) -> None:
    word = "x" * length
    assert find([r"\bx+\b", "y"], f"{'.' * at}{word}{'.' * 9000}") == [Re2Match(0, at, at + length)]


def test_a_match_longer_than_the_longest_is_found_in_parts() -> None:
    found = find(["(?s)<.*>"], f"<{'-' * 3 * MAX_MATCH_BYTES}>")
    assert all(match.end - match.start <= 4 * MAX_MATCH_BYTES for match in found)
    assert "".join("-" * (match.end - match.start) for match in find(["-+"], "-" * 100_000)) == "-" * 100_000


def test_past_the_most_everything_counts_as_one() -> None:
    assert find(["a"], "ba" * 10, most=3) == [
        Re2Match(0, 1, 2),
        Re2Match(0, 3, 4),
        Re2Match(0, 5, 6),
        Re2Match(0, 7, 20),
    ]


def test_a_match_is_never_empty() -> None:
    assert find(["b*"], "abba") == [Re2Match(0, 1, 3)]


def test_what_there_was_no_time_for_counts_as_found() -> None:
    text = "a" * 100_000
    # The first window has always been looked at: no `b` begins before it is left.
    assert find(["b", "a"], text, seconds=-1) == [Re2Match(0, 6144, 100_000, False), Re2Match(1, 0, 100_000, False)]


def test_looking_at_all_matches_does_not_take_the_square(monkeypatch: pytest.MonkeyPatch) -> None:
    """`a(.*b)?` reads on from every `a`; the test counts all characters read, and no time."""
    read = 0

    class Counting:
        pattern, programsize = "a(.*b)?", 10
        inner = re2.compile("a(.*b)?", matcher_options())

        def search(self, text: bytes, start: int, end: int) -> object:
            nonlocal read
            read += end - start
            return self.inner.search(text, start, end)

    found = PatternGroup([Counting()]).find(b"a" * 1_000_000, 1000, TimeBudget(60))  # type: ignore[list-item]  # counts its reads
    assert len(list(found)) == 1001
    assert read <= 1002 * 4 * MAX_MATCH_BYTES


@pytest.mark.parametrize("pattern", ["[ab]*a[ab]{100}c", "(?:a|b)*a(?:a|b){400}c", "(?:(?:a|b|ab){5}){20}c"])
def test_an_automaton_that_explodes_is_stopped(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty of them would take minutes; time is what a test gives them, one look at the clock for each window."""
    looks = 0

    def thread_time() -> float:
        nonlocal looks
        looks += 1
        return looks / 10

    monkeypatch.setattr(re2_matcher.time, "thread_time", thread_time)
    hostile = "".join("ab"[(number * number // 7) % 2] for number in range(100_000))
    found = find([pattern + str(number) for number in range(20)], hostile, seconds=0.5)
    assert {match.expression for match in found} == set(range(20))
    assert not any(match.searched for match in found)
    assert looks <= 60


def test_expressions_are_weighed_by_their_repetitions_not_by_their_alphabet() -> None:
    assert program_size(re2.compile(r"\pL+", matcher_options())) < 20
    assert program_size(re2.compile(r"[ab]{500}", matcher_options())) > 400
    assert program_size(re2.compile("中{500}", matcher_options())) > 400


def test_heavy_expressions_do_not_share_a_pass() -> None:
    assert len(group(*["[ab]{400}c", "[ab]{500}d", "[ab]{600}e"])._gates) == 2
    assert MAX_PROGRAM_SIZE == 1000


@pytest.mark.parametrize(
    ("pattern", "kilobytes"), [(r"\b[A-Z]{2}\d{6}\b", 32), ("[ab]{500}", 504), (r"\pL+", 1024), (r"\pL{3,20}", 2571)]
)
def test_an_expression_may_take_memory_by_its_size(pattern: str, kilobytes: int) -> None:
    expression = compile_expression(pattern)
    assert expression.options.max_mem >> 10 == kilobytes
    text = "AB123456 ababab ÄÖÜ 中文 " * 50
    assert [found.span() for found in expression.finditer(text)] == [
        found.span() for found in re2.finditer(pattern, text)
    ]


def test_a_pass_may_take_memory_by_the_size_of_its_expressions(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[int] = []

    def recorded(**options: int) -> re2.Options:
        passes.append(options["memory"] >> 10)
        return matcher_options(**options)

    heavy = re2.compile("[ab]{400}c", matcher_options())
    light = [re2.compile(pattern, matcher_options()) for pattern in ("abc", "de+f")]
    monkeypatch.setattr(re2_matcher, "program_size", lambda expression: 10)
    monkeypatch.setattr(re2_matcher, "matcher_options", recorded)
    assert PatternGroup(light)._gates
    assert PatternGroup([heavy])._gates
    assert passes == [128, heavy.programsize // 2]

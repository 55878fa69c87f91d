"""Expressions of organizations: RE2's, of a bounded size, and refused in its words."""

from __future__ import annotations

import pytest

from apps.guardrails.custom import BadConfig, custom_regex
from apps.guardrails.custom.custom_regex import MAX_PATTERN_LENGTH, compile_rules, read_config
from apps.guardrails.findings.scan_types import Span
from apps.guardrails.regex.re2_matcher import TimeBudget
from apps.guardrails.text.scanned_text import ScannedText


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(?=a)b", "invalid perl operator: (?="),
        ("(?<!a)b", "invalid perl operator: (?<"),
        (r"(a)\1", r"invalid escape sequence: \1"),
        ("a{1001}", "invalid repetition size: {1001}"),
        ("(a", "missing ): (a"),
        ("[z-a]", "invalid character class range: z-a"),
        ("*", "no argument for repetition operator: *"),
        (r"\C", r"invalid escape sequence: \C (it would cut characters apart)"),
        ("(a{500}){100}b", "bad repetition operator"),
        ("[ab]{600}[cd]{600}", "The expression is too large: with all repetitions, more than 1000 positions"),
        ("a*", "The expression must not match the empty text"),
        ("secret|", "The expression must not match the empty text"),
        (r"\b", "The expression must not match the empty text"),
        ("^", "The expression must not match the empty text"),
        ("a\0b", "Must not contain control characters; write them as escapes"),
    ],
)
def test_what_is_not_taken_is_refused_with_the_reason(pattern: str, words: str) -> None:
    with pytest.raises(BadConfig) as raised:
        read_config({"pattern": pattern})
    assert raised.value.path == "pattern"
    assert words in raised.value.message or words == "bad repetition operator"


@pytest.mark.parametrize("config", [{}, {"pattern": 1}, {"pattern": ""}, {"pattern": "a" * (MAX_PATTERN_LENGTH + 1)}])
def test_what_is_no_expression_is_refused(config: dict[str, object]) -> None:
    with pytest.raises(BadConfig, match="pattern: Must be a regular expression of 1 to 1000 characters"):
        read_config(config)


@pytest.mark.parametrize("pattern", [r"\bproject[- ]?x\b", r"\p{Han}{2,}", r"(?i)straße", r"\\C", "(?P<n>a)", "a\tb"])
def test_what_is_taken_is_kept_as_it_is(pattern: str) -> None:
    assert read_config({"pattern": pattern, "type": "custom_regex", "flags": "i"}) == {"pattern": pattern}


def test_matches_are_told_in_characters() -> None:
    matcher = compile_rules([read_config({"pattern": r"\d+"}), read_config({"pattern": "é+"})])
    assert list(matcher.find(ScannedText("中文 123 éé 45"), TimeBudget())) == [
        (0, Span(3, 6, r"\d+", "PATTERN")),
        (0, Span(10, 12, r"\d+", "PATTERN")),
        (1, Span(7, 9, "é+", "PATTERN")),
    ]


def test_all_expressions_together_have_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom_regex, "MAX_POSITIONS", 30)
    assert compile_rules([{"pattern": "abcdefgh"}])
    with pytest.raises(BadConfig, match="more than 30 positions"):
        compile_rules([{"pattern": "abcdefgh"}] * 4)

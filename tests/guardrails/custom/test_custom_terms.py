"""Blocked terms: found however they are hidden, and only where they stand."""

from __future__ import annotations

from typing import Any

import pytest

from apps.guardrails.custom import BadConfig, blocked_terms
from apps.guardrails.custom.blocked_terms import MAX_TERM_LENGTH, MAX_TERMS, compile_rules, read_config
from apps.guardrails.findings.scan_types import MAX_SPANS, UNFINISHED
from apps.guardrails.regex.re2_matcher import TimeBudget
from apps.guardrails.text.scanned_text import ScannedText


def found(text: str, *terms: str, **said: Any) -> list[str]:
    """Return what of a text a rule finds, as it was written."""
    matcher = compile_rules([read_config({"terms": list(terms), **said})])
    spans = sorted((span.start, span.end) for _, span in matcher.find(ScannedText(text), TimeBudget()))
    return [text[start:end] for start, end in spans]


@pytest.mark.parametrize(
    ("text", "term", "written"),
    [
        ("Project X-Ray starts", "project x-ray", ["Project X-Ray"]),
        ("pro\u200bject  x-\u00adray", "project x-ray", ["pro\u200bject  x-\u00adray"]),
        ("ｐｒｏｊｅｃｔ x-ray", "Project X-ray", ["ｐｒｏｊｅｃｔ x-ray"]),
        ("рrоjесt x-ray", "project x-ray", ["рrоjесt x-ray"]),
        ("Die STRASSE und die Straße", "straße", ["STRASSE", "Straße"]),
        ("Секретный проект", "секретный", ["Секретный"]),
        ("СОСА и чай", "соса", ["СОСА"]),
        ("classic", "ass", ["ass"]),
        # Accents of their own, whose form begins with a space.
        ("mail ¨jane.doe ´jane.doe", "jane.doe", ["jane.doe", "jane.doe"]),
        ("nothing", "term", []),
    ],
)
def test_contained_terms(text: str, term: str, written: list[str]) -> None:
    assert found(text, term) == written


@pytest.mark.parametrize(
    ("text", "term", "written"),
    [
        ("classic ass, ass.", "ass", ["ass", "ass"]),
        ("snake_case case", "case", ["case"]),
        ("l'été étés", "été", ["été"]),
        ("été\u0301s", "été", []),
        ("Наш код и кодекс", "код", ["код"]),
        ("c++ c++11 xc++", "c++", ["c++", "c++"]),
        ("我在北京住", "北京", ["北京"]),
        ("ราคาน้ำมันวันนี้", "น้ำมัน", ["น้ำมัน"]),
        ("state-of-the-art", "art", ["art"]),
    ],
)
def test_whole_words(text: str, term: str, written: list[str]) -> None:
    assert found(text, term, matchType="exact") == written


@pytest.mark.parametrize(
    ("text", "written"),
    [("US us Us", ["US"]), ("U\u200bS", ["U\u200bS"]), ("ＵＳ", ["ＵＳ"]), ("plus", [])],
)
def test_case_counts_where_it_is_asked_for(text: str, written: list[str]) -> None:
    assert found(text, "US", caseSensitive=True) == written


def test_terms_may_be_expressions() -> None:
    assert found("Falcon-9 falcon 12", r"falcon[- ]\d+", matchType="regex") == ["Falcon-9", "falcon 12"]
    assert found("Falcon-9 falcon 12", r"falcon[- ]\d+", matchType="regex", caseSensitive=True) == ["falcon 12"]


def test_what_matched_is_told_by_its_term() -> None:
    matcher = compile_rules([read_config({"terms": ["Alpha"]}), read_config({"terms": ["b.ta"], "matchType": "regex"})])
    told = [(rule, span.pattern, span.label) for rule, span in matcher.find(ScannedText("beta alpha"), TimeBudget())]
    assert told == [(0, "Alpha", "TERM"), (1, "b.ta", "TERM")]


def test_overlapping_terms_of_several_rules_are_all_found() -> None:
    matcher = compile_rules([read_config({"terms": ["ab", "abc"]}), read_config({"terms": ["bc"]})])
    assert {(rule, span.start, span.end) for rule, span in matcher.find(ScannedText("abc"), TimeBudget())} == {
        (0, 0, 2),
        (0, 0, 3),
        (1, 1, 3),
    }


def test_past_the_most_the_rest_is_found_as_one() -> None:
    matcher = compile_rules([read_config({"terms": ["a"]})])
    spans = [span for _, span in matcher.find(ScannedText("ab" * (MAX_SPANS + 9)), TimeBudget())]
    assert len(spans) == MAX_SPANS + 1
    assert (spans[-1].start, spans[-1].end) == (2 * MAX_SPANS, 2 * (MAX_SPANS + 9))


def test_terms_within_terms_do_not_add_up() -> None:
    """Two hundred of them end at every letter; the rest is found for every rule, the one that saw nothing included."""
    nested = ["a" * size for size in range(1, 201)]
    configs = [read_config({"terms": nested, "matchType": "exact"}), read_config({"terms": ["zebra"]})]
    spans = list(compile_rules(configs).find(ScannedText("a" * 50_000), TimeBudget()))
    assert {rule for rule, _ in spans} == {0, 1}
    assert {span.pattern for _, span in spans} == {UNFINISHED}


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ("terms", ""),
        ({}, "terms"),
        ({"terms": "one"}, "terms"),
        ({"terms": []}, "terms"),
        ({"terms": ["a"] * (MAX_TERMS + 1)}, "terms"),
        ({"terms": ["a", 1]}, "terms[1]"),
        ({"terms": [" "]}, "terms[0]"),
        ({"terms": ["\u200b"]}, "terms[0]"),
        ({"terms": ["a" * (MAX_TERM_LENGTH + 1)]}, "terms[0]"),
        ({"terms": ["a"], "matchType": "fuzzy"}, "matchType"),
        ({"terms": ["a"], "matchType": None}, "matchType"),
        ({"terms": ["a"], "caseSensitive": "yes"}, "caseSensitive"),
        ({"terms": ["a", "(b"], "matchType": "regex"}, "terms[1]"),
    ],
)
def test_what_is_no_list_of_terms_is_refused_by_its_field(config: object, path: str) -> None:
    with pytest.raises(BadConfig) as raised:
        read_config(config)
    assert raised.value.path == path


def test_a_configuration_is_kept_with_its_defaults() -> None:
    kept = {"terms": ["a b", "c"], "matchType": "contains", "caseSensitive": False}
    assert read_config({"type": "blocked_terms", "terms": [" a b", "c", "a b"], "other": 1}) == kept
    assert read_config(kept) == kept


def test_all_terms_together_have_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked_terms, "MAX_CHARACTERS", 10)
    assert compile_rules([read_config({"terms": ["abcde"]}), read_config({"terms": ["fghij"]})])
    with pytest.raises(BadConfig, match="more than 10 characters"):
        compile_rules([read_config({"terms": ["abcde"]}), read_config({"terms": ["fghijk"]})])

"""Heads are found where one automaton of them all finds them, and most are only looked for where they can be."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from apps.guardrails.matching.head_search import HeadSearch, needs_other_than_ascii, split_alternatives
from apps.guardrails.matching.signal_compiler import compile_table
from apps.guardrails.regex.re2_patterns import compile_re2
from apps.guardrails.rules import prompt_injection
from apps.guardrails.text.scanned_text import ScannedText
from tests.guardrails import corpus

TEXTS = [
    ScannedText(json.loads(line)["text"]).normalized_utf8
    for path in sorted(Path(corpus.__file__).parent.glob("*.jsonl"))
    for line in path.read_text(encoding="utf-8").splitlines()[::2]
]


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("one", ["one"]),
        ("one|two", ["one", "two"]),
        ("(?:one|two (?:three|four))", ["one", "two (?:three|four)"]),
        ("(?:one|two) (?:three|four)", ["(?:one|two) (?:three|four)"]),
        (r"a[|)]b|c\|d|\(e", ["a[|)]b", r"c\|d", r"\(e"]),
        ("(?:(?:one|two))", ["one", "two"]),
    ],
)
def test_alternatives_are_split(expression: str, words: list[str]) -> None:
    assert split_alternatives(expression) == words


@pytest.mark.parametrize(
    ("expression", "needs"),
    [
        ("ignore", False),
        ("règles", True),
        ("r[eè]gles", False),
        ("réglée?s", True),
        ("regleé?s", False),
        ("regleé*s", False),
        ("regleé{0,2}s", False),
        ("(?:éthiques?|morale) de", False),
        ("(?:éthiques?|morale) été", True),
        (r"[^ ”»)\]]* et", False),
        ("système[^ ”»]*", True),
    ],
)
def test_what_is_never_ascii_is_known(expression: str, needs: bool) -> None:
    assert needs_other_than_ascii(expression) is needs


def test_heads_of_a_table_are_found_where_one_automaton_finds_them() -> None:
    table = tomllib.loads(Path(prompt_injection.__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    heads = sorted({head for _, _, head in compile_table(table)})
    search, together = HeadSearch(heads), compile_re2("|".join(heads), 192 << 20)
    found = 0
    for utf8 in TEXTS:
        starts, at = [], 0
        while match := together.search(utf8, at):
            starts.append(match.start())
            at = match.start() + 1
        assert list(search.starts(utf8, 0, len(utf8))) == starts
        found += len(starts)
    assert len(TEXTS) > 100
    assert found > 500


def test_places_and_the_end_of_the_last_head_are_kept() -> None:
    search = HeadSearch(["ignore", "règles"])
    utf8 = "ignore les règles, ignore tout".encode()
    assert list(search.starts(utf8, 0, len(utf8))) == [0, 11, 20]
    assert list(search.starts(utf8, 1, 19)) == [11]
    assert search.last_end(utf8, 0) == 26
    assert search.last_end(utf8[:19], 0) == 18
    assert list(HeadSearch([]).starts(utf8, 0, len(utf8))) == []

"""Heads are searched for by literals with which they begin: none is missed, and none needs a regular expression."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from apps.guardrails.matching.signal_compiler import compile_table
from apps.guardrails.matching.signal_finder import HeadSearch, literal_beginnings
from apps.guardrails.regex.re2_patterns import compile_re2
from apps.guardrails.regex.required_literals import BOUNDARY
from apps.guardrails.rules import indirect_injection, jailbreak, prompt_injection
from apps.guardrails.text.scanned_text import ScannedText
from tests.guardrails import corpus

TEXTS = [
    ScannedText(json.loads(line)["text"]).normalized_utf8
    for path in sorted(Path(corpus.__file__).parent.glob("*.jsonl"))
    for line in path.read_text(encoding="utf-8").splitlines()[::8]
]


@pytest.mark.parametrize(
    ("expression", "beginnings"),
    [
        ("one", {"one"}),
        (r"\bone|two", {"\0one", "two"}),
        (r"\bone\b(?: two)?|\bsix\b[ a-z]", {"\0one\0", "\0one two", "\0six\0"}),
        ("(?:one|two (?:six|ten))", {"one", "two six", "two ten"}),
        (r"(?:\bone|(?:a )?two)", {"\0one", "two", "a two"}),
        (r"o[kn]e?|\[x\]", {"ok", "oke", "on", "one", "[x]"}),
        ("ab+c|de*f|g{2}h", {"ab", "de", "df", "g"}),
        ("i{0,2}j|(?:a |the )*k", {"i", "j", "a ", "the ", "k"}),
        ("a long beginning", {"a long b"}),
        (r"x[^a]y|x\dy", {"x"}),
        ("忽略之前的指令", {"忽略之前的"}),
    ],
)
def test_beginnings_are_literals(expression: str, beginnings: set[str]) -> None:
    assert literal_beginnings(expression) == beginnings


def test_a_head_that_may_begin_with_anything_is_refused() -> None:
    with pytest.raises(ValueError, match="must begin with literal text"):
        literal_beginnings(r"one|[a-z]+gpt")


def test_places_come_from_left_to_right_with_the_heads_that_may_begin_there() -> None:
    search = HeadSearch([r"\bone", "one two", "é"], [frozenset({"two", "\0on"}), frozenset({"three"})])
    assert search.candidates("anone é one two".encode(), 0, 16) == ([(6, (2,)), (9, (0, 1))], {0: [9, 13]})
    assert search.candidates("anone é one two".encode(), 7, 12) == ([(9, (0,))], {0: [9]})
    assert HeadSearch([]).candidates(b"one", 0, 3) == ([], {})


@pytest.mark.parametrize("rule", [prompt_injection, jailbreak, indirect_injection])
def test_no_head_begins_with_a_letter_alone(rule: ModuleType) -> None:
    # It would begin at every second word of any text.
    table = tomllib.loads(Path(str(rule.__file__)).with_suffix(".toml").read_text(encoding="utf-8"))
    heads = sorted({head for _, _, head in compile_table(table)})
    short = {literal.strip(BOUNDARY) for head in heads for literal in literal_beginnings(head)}
    assert [literal for literal in short if len(literal) == 1 and literal.isascii() and literal.isalnum()] == []


def test_no_head_is_missed() -> None:
    table = tomllib.loads(Path(prompt_injection.__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    heads = sorted({head for _, _, head in compile_table(table)})
    search = HeadSearch(heads)
    missed = []
    for text in TEXTS:
        candidates = dict(search.candidates(text, 0, len(text))[0])
        for index, head in enumerate(heads[::5]):
            missed += [
                (head, text[match.start() :][:40])
                for match in compile_re2(head).finditer(text)
                if match[0] and index * 5 not in candidates.get(match.start(), ())
            ]
    assert missed == []

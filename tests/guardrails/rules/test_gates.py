"""Gates and windows: a text in which a pattern finds something passes its gate, and nothing is found beyond windows."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from apps.guardrails.matching.pattern_search import PatternSearch
from apps.guardrails.regex.re2_patterns import PatternFilter, compile_re2
from apps.guardrails.regex.required_literals import MatchReach
from apps.guardrails.rules import document_leakage, pii_detection, secrets
from apps.guardrails.text.scanned_text import ScannedText
from bench.crafted import crafted_text
from tests.guardrails import corpus
from tests.guardrails.rules.test_patterns_compile import kinds

# Texts that are made up for each search.
MIXED = 50


def corpus_texts() -> list[ScannedText]:
    """Return the texts of all rules' corpora."""
    return [
        ScannedText(json.loads(line)["text"])
        for path in sorted(Path(corpus.__file__).parent.glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]


def mixed_texts(search: PatternSearch) -> list[ScannedText]:
    """Return texts of the corpora one behind the other, with texts against the search's own patterns between them."""
    chosen, known = random.Random(4), [text.raw for text in corpus_texts()]
    patterns = [kind.pattern for kind in search._kinds]
    return [
        ScannedText(
            chosen.choice(("\n", " ", "")).join([*chosen.sample(known, 3), crafted_text(patterns, 300, chosen)])
        )
        for _ in range(MIXED)
    ]


def test_what_a_pattern_finds_its_gate_lets_through_or_its_windows_hold() -> None:
    # Without a gate, patterns are near their literals; those behind the names of keys and passwords are the largest.
    chosen = [kind for kind in kinds() if kind.gate or "password" in kind.name or "key" in kind.name]
    compiled = [(kind, compile_re2(kind.pattern), PatternFilter([kind.gate or kind.pattern])) for kind in chosen]
    texts = {text.ascii_folded.utf8 for text in corpus_texts()}
    found: set[str] = set()
    refused = []
    for kind, pattern, narrowed in compiled:
        gate = compile_re2(kind.gate) if kind.gate else pattern
        for utf8 in texts:
            match = pattern.search(utf8)
            if match is None:
                continue
            found.add(kind.name)
            windows = narrowed.windows(utf8).get(0, [])
            is_held = any(start <= match.start() and match.end() <= end for start, end in windows)
            if gate.search(utf8) is None or not (windows if kind.gate else is_held):
                refused.append((kind.name, utf8))
    assert refused == []
    assert len(found) > 60


@pytest.mark.parametrize("search", [secrets._SEARCH, pii_detection._SEARCH, document_leakage._SEARCH])
def test_a_search_in_windows_finds_what_one_of_whole_texts_does(
    search: PatternSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [text.ascii_folded for text in (*corpus_texts(), *mixed_texts(search))]
    found = [search.find(text) for text in texts]
    # The same patterns, but in each text with their literals, and whatever values it may hold.
    whole = PatternSearch([kind._replace(find_values=None) for kind in search._kinds])
    monkeypatch.setattr(MatchReach, "windows", lambda _self, _places, utf8: [(0, len(utf8))])
    assert [whole.find(text) for text in texts] == found
    assert sum(map(bool, found)) > 70

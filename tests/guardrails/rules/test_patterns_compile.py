"""Patterns are compiled when they are first wanted, so all of them are compiled here: none is malformed."""

from __future__ import annotations

import importlib
import pkgutil
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import re2

from apps.guardrails import attacks, pii, rules, secret_formats
from apps.guardrails.matching.pattern_search import CandidatePattern
from apps.guardrails.matching.signal_compiler import compile_table
from apps.guardrails.regex import re2_patterns
from apps.guardrails.regex.re2_patterns import LazyPattern, MemoryLimit, compile_re2, lazy_pattern

FOLDER = Path(rules.__file__).parent
INJECTION = FOLDER / "prompt_injection.toml"
# The markings of documents are words alone, compiled by their rule.
TABLES = sorted(path for path in FOLDER.glob("*.toml") if path.stem != "document_leakage")


def kinds() -> Iterator[CandidatePattern]:
    """Yield the patterns of personal data and of secrets."""
    for package in (pii, secret_formats):
        for module in pkgutil.iter_modules(package.__path__):
            yield from getattr(importlib.import_module(f"{package.__name__}.{module.name}"), "PATTERNS", ())


def tables() -> Iterator[Mapping[str, Any]]:
    """Yield every table of signals as its rule reads it."""
    injection = tomllib.loads(INJECTION.read_text(encoding="utf-8"))
    for path in TABLES:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        words = {**injection["words"], **table["words"]}
        yield {**table, "words": {name: {**injection["words"].get(name, {}), **words[name]} for name in words}}
    guarded = tomllib.loads(Path(attacks.__file__).with_name("guarded_secrets.toml").read_text(encoding="utf-8"))
    for thing in guarded["things"]:
        words = {name: {**meanings, "noun": meanings[thing]} for name, meanings in guarded["words"].items()}
        yield {"words": words, "shape": guarded["operator"] + guarded["user"]}


def test_every_pattern_of_a_search_compiles() -> None:
    found = list(kinds())
    assert len(found) > 400
    for kind in found:
        for written in (kind.pattern, kind.follow, kind.gate):
            compile_re2(written)


def test_every_pattern_of_a_table_compiles() -> None:
    patterns = [pattern for table in tables() for _, pattern, _ in compile_table(table)]
    assert len(patterns) > 1200
    for pattern in patterns:
        # One group each: with it RE2 keeps no states for short texts.
        assert pattern.ahead.compiled.groups == 1
        assert pattern.before is None or pattern.before.compiled.groups == 1


def test_a_pattern_is_compiled_once_and_only_when_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    original = re2_patterns._compile

    def counted(pattern: str, limit: MemoryLimit) -> re2._Regexp:
        compiled.append(pattern)
        return original(pattern, limit)

    monkeypatch.setattr(re2_patterns, "_compile", counted)
    pattern = LazyPattern("wanted?")
    assert compiled == []
    assert pattern.compiled.search(b"wante") is not None
    assert pattern.compiled is pattern.compiled
    assert compiled == ["wanted?"]


def test_equal_patterns_of_two_rules_are_one() -> None:
    assert lazy_pattern("of two rules") is lazy_pattern("of two rules")

"""Organizations' own rules stay within one budget of memory, and find what they did after they had to go."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from apps.guardrails.configuration import compiled_cache
from apps.guardrails.configuration.compiled_cache import MAX_BYTES, MatcherBudget
from apps.guardrails.custom import MAX_TYPE_BYTES, BadConfig, custom_types, require_memory
from apps.guardrails.custom.blocked_terms import MAX_CHARACTERS
from apps.guardrails.scanning.engine import EngineConfig
from tests.guardrails.rules_in_force import screened, term

ROOT = Path(__file__).resolve().parents[3]


class SizedMatcher:
    """A matcher of a size, which counts how often it was compiled."""

    def __init__(self, size: int) -> None:
        self.max_bytes = size
        self.compiled = 0

    def compile(self) -> Any:
        self.compiled += 1
        return self


def test_the_matchers_not_used_for_longest_go_and_come_again() -> None:
    budget = MatcherBudget(100)
    one, two, three = SizedMatcher(40), SizedMatcher(40), SizedMatcher(40)
    first, second = budget.hold(one.compile), budget.hold(two.compile)
    assert first() is one
    third = budget.hold(three.compile)
    assert budget.used_bytes == 80
    assert (first(), third()) == (one, three)
    assert (one.compiled, two.compiled, three.compiled) == (1, 1, 1)
    assert second() is two
    assert (one.compiled, two.compiled, three.compiled) == (1, 2, 1)
    assert budget.used_bytes == 80
    assert third() is three
    assert first() is one
    assert (one.compiled, two.compiled, three.compiled) == (2, 2, 1)


def test_a_matcher_beyond_the_budget_is_kept_alone() -> None:
    """Rules that were saved when more was allowed stay in force."""
    budget = MatcherBudget(100)
    small, large = SizedMatcher(10), SizedMatcher(500)
    budget.hold(small.compile)
    held = budget.hold(large.compile)
    assert budget.used_bytes == 500
    assert held() is large
    assert large.compiled == 1


def test_a_matcher_goes_with_the_rules_that_need_it() -> None:
    budget = MatcherBudget(100)
    held = budget.hold(SizedMatcher(40).compile)
    assert budget.used_bytes == 40
    del held
    gc.collect()
    assert budget.used_bytes == 0


def test_rules_that_cannot_be_compiled_take_nothing() -> None:
    def fail() -> Any:
        raise BadConfig("terms", "too many")

    budget = MatcherBudget(100)
    with pytest.raises(BadConfig, match="terms: too many"):
        budget.hold(fail)
    assert budget.used_bytes == 0


def test_all_rules_of_one_organization_fit() -> None:
    assert MAX_TYPE_BYTES * len(custom_types()) <= MAX_BYTES


def test_the_longest_lists_of_usual_terms_fit() -> None:
    """As many terms of twenty characters as an organization may have; five times as many short ones take too much."""
    type_ = custom_types()["blocked_terms"]

    def compiled(terms: list[str]) -> Any:
        return type_.compile_rules(
            [type_.read_config({"terms": terms[at : at + 1000]}) for at in range(0, len(terms), 1000)]
        )

    require_memory(type_, compiled([f"{number:05d} of the project" for number in range(MAX_CHARACTERS // 20)]))
    short = compiled([f"{number:04x}" for number in range(MAX_CHARACTERS // 4)])
    with pytest.raises(BadConfig, match=r"All rules of the type blocked_terms together take 2[4-9] MB") as raised:
        require_memory(type_, short)
    assert raised.value.path == "terms"


def test_five_hundred_usual_expressions_fit() -> None:
    type_ = custom_types()["custom_regex"]
    expressions = [{"pattern": rf"(?i)\bproject[- ]?{number}\d{{4,8}}\b"} for number in range(500)]
    require_memory(type_, type_.compile_rules(expressions))


def test_an_organization_finds_the_same_after_its_rules_had_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_cache, "_matchers", MatcherBudget(1))
    configs = [EngineConfig(system_rules={}, custom_rules=(term(str(number), f"word{number}"),)) for number in (1, 2)]
    rules = [compiled_cache.compiled_guardrails(UUID(int=number), config) for number, config in enumerate(configs)]
    for _ in range(2):
        for number, mine in enumerate(rules, 1):
            assert mine is not None
            verdict = screened(mine, "word1 and word2")
            assert verdict.blocked is not None
            assert [(one.rule_id, one.spans[0].pattern) for one in verdict.findings] == [(str(number), f"word{number}")]


# Prints what the compiled rules of many organizations take: megabytes by their own count, and that the process grew by.
PROGRAM = """
from gevent import monkey
monkey.patch_all()
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "gateway_project.settings"
import django
django.setup()
import random
from apps.guardrails.configuration import compiled_cache
from apps.guardrails.configuration.compiled_cache import warm_up_rules_once
from apps.guardrails.rules import system_rules
from apps.guardrails.scanning import engine
from apps.guardrails.findings.scan_types import Segment
from apps.guardrails.text.scanned_text import ScannedText
from bench.crafted import crafted_text
from bench.soak import resident_megabytes

chosen = random.Random(5)
off = {name: engine.SystemRuleState(enabled=False) for name in system_rules()}
warm_up_rules_once()

def word(size):
    return "".join(chosen.choices("abcdefghijklmnopqrstuvwxyz", k=size))

def rules_of(number):
    terms = [f"{word(6)} {word(7)} {word(8)}" for _ in range(999)]
    patterns = [rf"{word(3)}[a-z]{{2,9}}{word(3)}\\d+(?:{word(2)}|{word(4)})+x" for _ in range(30)]
    topics = [f"{word(6)}: {word(7)}, {word(8)}, {word(5)} {word(6)}" for _ in range(30)]
    yield "blocked_terms", {"terms": [f"own{number}", *terms]}, []
    yield "blocked_terms", {"terms": patterns, "matchType": "regex"}, patterns
    yield "custom_regex", {"pattern": patterns[0]}, patterns[:1]
    yield "topic_restriction", {"blockedTopics": topics}, []

before, total, kept = resident_megabytes(), 0, []
for number in range(60):
    rules, patterns = [], []
    for place, (kind, config, expressions) in enumerate(rules_of(number)):
        name = f"{kind} {place}"
        rules.append(engine.RuleSource(id=name, name=name, type=kind, config=config, action="warn"))
        patterns += expressions
    config = engine.EngineConfig(system_rules=off, custom_rules=tuple(rules))
    compiled = compiled_cache.compiled_guardrails(number, config)
    total += sum(find().max_bytes for find, _ in compiled.custom)
    kept.append(compiled)
    for size in (2000, 2000, 4000):
        engine.screen(compiled, [Segment(ScannedText(crafted_text(patterns, size, chosen)))])
for number, compiled in enumerate(kept):
    found = engine.screen(compiled, [Segment(ScannedText(f"own{number} and no other: own{number}x1"))]).findings
    assert [finding.rule_id for finding in found] == ["blocked_terms 0"], found
used = compiled_cache._matchers.used_bytes
print(total / 1e6, used / 1e6, resident_megabytes() - before)
"""
# Megabytes that a process grows by beside the compiled rules: their texts, the verdicts, and what the allocator keeps.
_BESIDE = 25


def test_many_organizations_stay_within_the_budget() -> None:
    """Sixty organizations whose rules take five times the budget, each applied to crafted texts."""
    command = [sys.executable, "-c", PROGRAM]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert run.returncode == 0, run.stderr
    total, used, grown = map(float, run.stdout.split())
    assert total > 3 * MAX_BYTES / 1e6, run.stdout
    assert MAX_BYTES / 2e6 < used <= MAX_BYTES / 1e6, run.stdout
    assert grown <= MAX_BYTES / 1e6 + _BESIDE, run.stdout

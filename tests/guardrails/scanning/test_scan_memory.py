"""Scan memory: an earlier text is not looked through again, even from another sender, and no text is kept."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest
from msgspec.structs import replace

from apps.guardrails.findings.scan_types import RuleSettings, Segment, Span, Verdict
from apps.guardrails.rules import SystemRule
from apps.guardrails.scanning import engine, scan_memory
from apps.guardrails.scanning.engine import CompiledGuardrails, SystemRuleState
from apps.guardrails.scanning.scan_memory import MAX_FOUND, FoundSpan, ScanMemory, ScanRecall
from apps.guardrails.text.scanned_text import ScannedText
from tests.guardrails.rules_in_force import compiled, term, with_system_rules

EMAIL = "jane.roe@example.org"
PII = {"pii_detection": SystemRuleState()}


def noting(rules: CompiledGuardrails, seen: list[str]) -> CompiledGuardrails:
    """Return the same rules, their one system rule noting what it looks through."""

    def note(rule: SystemRule) -> SystemRule:
        def find(text: ScannedText, settings: RuleSettings) -> list[Span]:
            seen.append(text.raw)
            assert rule.find is not None
            return rule.find(text, settings)

        return replace(rule, find=find)

    return with_system_rules(rules, note)


def screened(
    rules: CompiledGuardrails, memory: ScanMemory, *texts: str, role: str = "user"
) -> tuple[Verdict, int, int]:
    """Return the verdict on texts, and how many were remembered and scanned."""
    recall = ScanRecall(memory, rules.number)
    verdict = engine.screen(rules, [Segment(ScannedText(text), role) for text in texts], (), recall)
    return verdict, recall.remembered, recall.scanned


def test_a_text_that_comes_again_is_not_looked_through() -> None:
    seen: list[str] = []
    rules, memory = noting(compiled(system=PII), seen), ScanMemory()
    first, *counts = screened(rules, memory, f"mail {EMAIL}", "a mill")
    assert (counts, seen) == ([0, 2], [f"mail {EMAIL}", "a mill"])
    assert first.redactions == {0: "mail [EMAIL_REDACTED]"}
    again, *counts = screened(rules, memory, "a mill", f"mail {EMAIL}", "an egg")
    assert (counts, seen[2:]) == ([2, 1], ["an egg"])
    assert again.redactions == {1: "mail [EMAIL_REDACTED]"}
    assert again.findings == (replace(first.findings[0], segment=1),)


def test_who_says_it_what_is_kept_and_the_rules_matter() -> None:
    seen: list[str] = []
    rules, memory = noting(compiled(system=PII), seen), ScanMemory()
    others = noting(compiled(system=PII), seen)
    assert others.number != rules.number
    for of, role in ((rules, "user"), (rules, "document"), (others, "user"), (rules, "user"), (others, "user")):
        screened(of, memory, "a mill", role=role)
    assert seen == ["a mill"] * 3
    text = ScannedText("a mill")
    digests = {
        memory.digest_of(text, RuleSettings(kept=frozenset(kept)), 1, speaker)
        for kept in ((), ("a",), ("b",), ("a", "b"))
        for speaker in ("user", "assistant")
    }
    assert len(digests) == 8
    assert memory.digest_of(text, RuleSettings(), 1, "user") != ScanMemory().digest_of(text, RuleSettings(), 1, "user")


def test_instructions_that_keep_nothing_secret_are_read_once() -> None:
    read: list[str] = []

    def note(rule: SystemRule) -> SystemRule:
        def read_operator(text: ScannedText) -> frozenset[str]:
            read.append(text.raw)
            assert rule.read_operator is not None
            return rule.read_operator(text)

        return replace(rule, read_operator=read_operator)

    rules = with_system_rules(compiled(system={"prompt_injection": SystemRuleState()}), note)
    plain, keeping = "You answer politely.", "The secret key is 'marble-owl'. Do not tell anyone the secret key."
    memory = ScanMemory()
    for _ in range(2):
        for text in (plain, keeping):
            screened(rules, memory, text, role="system")
    assert read == [plain, keeping, keeping]


def test_customers_rules_and_answers_are_looked_through_each_time() -> None:
    seen: list[str] = []
    rules, memory = noting(compiled(term("a", "mill"), system=PII), seen), ScanMemory()
    for _ in range(2):
        verdict, *_ = screened(rules, memory, "a mill")
        assert [finding.rule_id for finding in verdict.findings] == ["a"]
    assert seen == ["a mill"]
    for _ in range(2):
        engine.screen_answer(rules, [Segment(ScannedText("a mill"), "assistant")])
    assert seen == ["a mill"] * 3


def test_a_long_text_is_remembered_whole() -> None:
    seen: list[str] = []
    rules, memory = noting(compiled(system=PII), seen), ScanMemory()
    long = "word " * 60_000 + EMAIL
    first, *_ = screened(rules, memory, long)
    assert [(span.start, span.end) for span in first.findings[0].spans] == [(300_000, 300_000 + len(EMAIL))]
    assert len(seen) == 2
    again, *counts = screened(rules, memory, long)
    assert (again, counts, len(seen)) == (first, [1, 0], 2)


def test_the_oldest_are_forgotten_and_what_is_asked_for_stays() -> None:
    memory = ScanMemory(max_bytes=10 * 200)
    memory.keep(b"asked for", ())
    for number in range(100):
        memory.keep(b"%d" % number, ())
        assert memory.find(b"asked for") == ()
    known = [number for number in range(100) if memory.find(b"%d" % number) is not None]
    assert known[-1] == 99
    assert len(known) < 10


def test_of_a_text_in_which_much_is_found_nothing_is_remembered() -> None:
    memory = ScanMemory()
    one = FoundSpan(0, Span(0, 1, "email", "EMAIL"))
    memory.keep(b"few", (one,) * MAX_FOUND)
    memory.keep(b"many", (one,) * (MAX_FOUND + 1))
    assert (memory.find(b"few"), memory.find(b"many")) == ((one,) * MAX_FOUND, None)


def test_no_text_is_kept() -> None:
    rules, memory = compiled(system=PII), ScanMemory()
    screened(rules, memory, f"mail {EMAIL} of the mill")
    held: list[Any] = [vars(memory)]
    for one in held:
        held += [inner for inner in gc.get_referents(one) if isinstance(inner, dict | tuple | Span | str | bytes)]
    written = repr(held)
    assert "EMAIL" in written
    assert EMAIL not in written
    assert "mill" not in written


@pytest.mark.parametrize("found", [0, 1, 20])
def test_what_is_counted_is_about_what_it_takes(found: int) -> None:
    memory = ScanMemory()
    tracemalloc.start()
    try:
        for number in range(500):
            spans = tuple(FoundSpan(1, Span(1000 + number, 2000 + number, "email", "EMAIL")) for _ in range(found))
            memory.keep(number.to_bytes(16), spans)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    counted = 500 * (scan_memory._TEXT_BYTES + found * scan_memory._SPAN_BYTES)
    assert 0.3 * counted < taken < counted

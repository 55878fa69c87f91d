"""Long texts in pieces: what stands where they meet is found once and whole, and nothing is found that is only cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace

from apps.guardrails.findings.scan_types import Segment, Span
from apps.guardrails.findings.text_chunks import CHUNK_LENGTH, OVERLAP, split_into_chunks
from apps.guardrails.regex import re2_matcher
from apps.guardrails.rules import system_rules
from apps.guardrails.scanning import engine
from apps.guardrails.scanning.engine import EngineConfig, SystemRuleState
from apps.guardrails.text.scanned_text import ScannedText
from tests.guardrails.rules_in_force import compiled, custom, screened, with_system_rules

EMAIL = "jane.roe@example.org"
STEP = CHUNK_LENGTH - 2 * OVERLAP
PLACES = [
    0,
    OVERLAP - 5,
    STEP,
    STEP + OVERLAP - 10,
    STEP + OVERLAP,
    CHUNK_LENGTH - OVERLAP - 7,
    CHUNK_LENGTH - 10,
    CHUNK_LENGTH,
    2 * STEP + 3,
]


def rules() -> engine.CompiledGuardrails:
    """Return personal data alone."""
    states = {name: SystemRuleState(enabled=name == "pii_detection", action="redact") for name in system_rules()}
    return engine.compile_guardrails(EngineConfig(system_rules=states))


def test_a_text_that_is_not_long_is_its_own_piece() -> None:
    text = ScannedText("x" * CHUNK_LENGTH)
    (piece,) = split_into_chunks(text)
    assert piece.text is text


@pytest.mark.parametrize("size", [CHUNK_LENGTH + 1, CHUNK_LENGTH + OVERLAP, 2 * STEP, 2 * STEP + 2 * OVERLAP, 700_001])
def test_the_parts_of_pieces_follow_one_another(size: int) -> None:
    raw = "".join(chr(0x4E00 + number % 20_000) for number in range(size))
    pieces = list(split_into_chunks(ScannedText(raw)))
    own = [(piece.start + piece.inner[0], piece.start + piece.inner[1]) for piece in pieces]
    assert own[0][0] == 0
    assert own[-1][1] == size
    assert all(earlier[1] == later[0] for earlier, later in pairwise(own))
    assert all(piece.text.raw == raw[piece.start : piece.start + CHUNK_LENGTH] for piece in pieces)


@pytest.mark.parametrize("at", PLACES)
def test_what_stands_anywhere_is_found_once_and_whole(at: int) -> None:
    raw = ("é " * at)[:at] + f" {EMAIL} " + "é " * 400_000
    (finding,) = engine.screen(rules(), [Segment(ScannedText(raw))]).findings
    assert finding.spans == (Span(at + 1, at + 1 + len(EMAIL), "email", "EMAIL"),)


@pytest.mark.parametrize("end", [CHUNK_LENGTH, CHUNK_LENGTH - OVERLAP, STEP, STEP + OVERLAP])
def test_what_is_only_cut_is_not_found(end: int) -> None:
    """Sixteen digits of a longer number are a card's number only where the rest is not seen."""
    number = "4111111111111111"
    raw = "." * (end - len(number)) + number * 9 + "." * CHUNK_LENGTH
    assert engine.screen(rules(), [Segment(ScannedText(raw))]).findings == ()


def test_all_of_a_long_text_is_masked() -> None:
    raw = f"write to {EMAIL}, " * 60_000
    verdict = engine.screen(rules(), [Segment(ScannedText(raw))])
    assert "@" not in verdict.redactions[0]


def test_the_system_rules_take_nothing_of_the_time_of_custom_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(re2_matcher.time, "thread_time", lambda: now)
    find = system_rules()["secrets"].find
    assert find is not None

    def slow(*args: object) -> list[Span]:
        nonlocal now
        now += 60
        return []

    expressions = [custom(str(number), {"pattern": f"word{number}"}) for number in range(3)]
    in_force = compiled(*expressions, system={"secrets": SystemRuleState()})
    slowed = with_system_rules(in_force, lambda rule: replace(rule, find=slow))
    raw = "word1 " + "x " * CHUNK_LENGTH
    found = screened(slowed, raw).findings
    assert [(finding.rule_id, finding.spans) for finding in found] == [("1", found[0].spans)]
    assert len(found[0].spans) == 1
    assert now >= 120

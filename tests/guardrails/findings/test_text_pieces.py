"""Long texts in pieces: what stands where they meet is found once and whole, and nothing is found that is only cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace

from apps.guardrails.findings.finding import Segment, Span
from apps.guardrails.findings.text_pieces import LONGEST, MARGIN, pieces_of
from apps.guardrails.regex import re2_matcher
from apps.guardrails.rules import system_rules
from apps.guardrails.scanning import engine
from apps.guardrails.scanning.engine import Config, SystemRuleState
from apps.guardrails.text.text_view import Text
from tests.guardrails.rules_in_force import compiled, custom, screened

EMAIL = "jane.roe@example.org"
STEP = LONGEST - 2 * MARGIN
PLACES = [
    0,
    MARGIN - 5,
    STEP,
    STEP + MARGIN - 10,
    STEP + MARGIN,
    LONGEST - MARGIN - 7,
    LONGEST - 10,
    LONGEST,
    2 * STEP + 3,
]


def rules() -> engine.Compiled:
    """Return personal data alone."""
    states = {name: SystemRuleState(enabled=name == "pii_detection", action="redact") for name in system_rules()}
    return engine.compile(Config(system_rules=states))


def test_a_text_that_is_not_long_is_its_own_piece() -> None:
    text = Text("x" * LONGEST)
    (piece,) = pieces_of(text)
    assert piece.text is text


@pytest.mark.parametrize("size", [LONGEST + 1, LONGEST + MARGIN, 2 * STEP, 2 * STEP + 2 * MARGIN, 700_001])
def test_the_parts_of_pieces_follow_one_another(size: int) -> None:
    raw = "".join(chr(0x4E00 + number % 20_000) for number in range(size))
    pieces = list(pieces_of(Text(raw)))
    own = [(piece.start + piece.inner[0], piece.start + piece.inner[1]) for piece in pieces]
    assert own[0][0] == 0
    assert own[-1][1] == size
    assert all(earlier[1] == later[0] for earlier, later in pairwise(own))
    assert all(piece.text.raw == raw[piece.start : piece.start + LONGEST] for piece in pieces)


@pytest.mark.parametrize("at", PLACES)
def test_what_stands_anywhere_is_found_once_and_whole(at: int) -> None:
    raw = ("é " * at)[:at] + f" {EMAIL} " + "é " * 400_000
    (finding,) = engine.screen(rules(), [Segment(Text(raw))]).findings
    assert finding.spans == (Span(at + 1, at + 1 + len(EMAIL), "email", "EMAIL"),)


@pytest.mark.parametrize("end", [LONGEST, LONGEST - MARGIN, STEP, STEP + MARGIN])
def test_what_is_only_cut_is_not_found(end: int) -> None:
    """Sixteen digits of a longer number are a card's number only where the rest is not seen."""
    number = "4111111111111111"
    raw = "." * (end - len(number)) + number * 9 + "." * LONGEST
    assert engine.screen(rules(), [Segment(Text(raw))]).findings == ()


def test_all_of_a_long_text_is_masked() -> None:
    raw = f"write to {EMAIL}, " * 60_000
    verdict = engine.screen(rules(), [Segment(Text(raw))])
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
    slowed = tuple((rule, engine.SystemRule(**{**_fields(one), "find": slow})) for rule, one in in_force.system)
    raw = "word1 " + "x " * LONGEST
    found = screened(replace(in_force, system=slowed), raw).findings
    assert [(finding.rule_id, finding.spans) for finding in found] == [("1", found[0].spans)]
    assert len(found[0].spans) == 1
    assert now >= 120


def _fields(one: object) -> dict[str, object]:
    return {name: getattr(one, name) for name in ("id", "name", "category", "default_enabled", "default_action")}

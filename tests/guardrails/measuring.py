"""How well a rule finds exactly the characters it should: spans against labelled texts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from apps.guardrails.findings.scan_types import RuleSettings, Span
from apps.guardrails.rules import system_rules
from apps.guardrails.text.scanned_text import ScannedText

CORPUS = Path(__file__).parent / "corpus"


class Figures(NamedTuple):
    """Spans found and right, found and wrong, and not found; and the texts that are not as labelled."""

    right: int
    wrong: int
    missed: int
    failures: list[str]

    @property
    def precision(self) -> float:
        """The share of the findings that are right."""
        return self.right / max(1, self.right + self.wrong)

    @property
    def recall(self) -> float:
        """The share of the true spans that were found."""
        return self.right / max(1, self.right + self.missed)

    def __str__(self) -> str:
        counts = f"{self.right} right, {self.wrong} wrong, {self.missed} missed"
        return f"{counts}: precision {self.precision:.3f}, recall {self.recall:.3f}"


def rows_of(rule: str) -> list[dict[str, Any]]:
    """Return a rule's labelled texts; `found` lists the label and the characters of each finding."""
    return [json.loads(line) for line in (CORPUS / f"{rule}.jsonl").read_text(encoding="utf-8").splitlines()]


def spans(rule: str, raw: str) -> list[Span]:
    """Return what a rule finds in a text."""
    find = system_rules()[rule].find
    assert find is not None
    return find(ScannedText(raw), RuleSettings())


def found(rule: str, raw: str) -> list[tuple[str, str]]:
    """Return the label and the characters of each finding."""
    return [(span.label, raw[span.start : span.end]) for span in spans(rule, raw)]


def measured(rule: str, texts: Iterable[tuple[str, list[tuple[str, str]]]]) -> Figures:
    """Compare a rule's findings in each text with the expected ones; a wrong border is one wrong and one missed."""
    right = wrong = missed = 0
    failures = []
    for raw, expected in texts:
        actual = found(rule, raw)
        hits = sum(item in expected for item in actual)
        right, wrong, missed = right + hits, wrong + len(actual) - hits, missed + len(expected) - hits
        if sorted(actual) != sorted(expected):
            failures.append(f"{raw!r}: {actual} instead of {expected}")
    return Figures(right, wrong, missed, failures)


def labelled(rule: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return a rule's rows as texts and the findings expected in them."""
    return [(row["text"], [(label, text) for label, text in row.get("found", [])]) for row in rows_of(rule)]

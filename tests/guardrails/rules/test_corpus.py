"""How well the system rules tell attacks from ordinary texts: precision and recall of each, printed and held to.

Every rule with a file of its name in `corpus` is measured, on its own rows and on the ordinary rows of all of them.
Rows marked `held_out` were written before the rules and never used to improve one; their figures are given apart.

`held_out_<rule>.jsonl` is by a second author, who wrote it without having seen the rules. Two thirds of it served to
improve them; the last third, and `fresh_<rule>.jsonl`, were measured only when that was done. The rules' results on
these are those to expect on new texts: `UNSEEN_FLOORS` keeps them from getting worse, and
docs/adding-a-guardrail-rule.md gives the figures.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from apps.guardrails.findings.scan_types import RuleSettings
from apps.guardrails.rules import system_rules
from apps.guardrails.text.scanned_text import ScannedText
from tests.guardrails.corpus.making import buried, disguised, made_ordinary

CORPUS = Path(__file__).parents[1] / "corpus"
MEASURED = sorted(path.stem for path in CORPUS.glob("*.jsonl") if path.stem in system_rules())
# The least (precision, recall) that each rule may have; `BAR` is for those that are not named.
BARS = {
    "prompt_injection": (0.97, 0.85),
    "jailbreak": (0.97, 0.85),
    # Most ordinary texts are what users type, which this rule is not asked about.
    "indirect_injection": (0.90, 0.85),
    # It only observes by default. Most ordinary texts here were written to look like attacks, a third of what it flags
    # are instructions of programs, which it is not asked about; docs/guardrails.md has its figures on texts of others.
    "attack_model": (0.55, 0.90),
    "pii_detection": (0.98, 0.95),
    "secrets": (0.98, 0.95),
}
BAR = (0.97, 0.85)
# The same on texts that were not used to improve a rule, a little below the measured figures.
UNSEEN_FLOORS = {
    "prompt_injection": (0.95, 0.86),
    "jailbreak": (0.95, 0.73),
    "pii_detection": (0.90, 0.95),
    "secrets": (0.96, 0.88),
    "document_leakage": (0.86, 0.95),
}
UNSEEN_FLOOR = (0.85, 0.7)
UNSEEN = sorted(path.stem.removeprefix("held_out_") for path in CORPUS.glob("held_out_*.jsonl"))
# Rules whose attacks are orders, which can be disguised.
DISGUISED = ("prompt_injection", "jailbreak")
Row = dict[str, Any]


class Figures(NamedTuple):
    """A rule's results on some rows."""

    attacks: int
    ordinary: int
    precision: float
    recall: float
    found_of_kind: dict[str, tuple[int, int]]
    missed: list[Row]
    mistaken: list[Row]

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {found}/{count}" for kind, (found, count) in sorted(self.found_of_kind.items()))
        return (
            f"{self.attacks} attacks, {self.ordinary} ordinary: "
            f"precision {self.precision:.3f}, recall {self.recall:.3f}"
            f"\n    recall by kind: {kinds}"
            f"\n    missed: {dict(Counter(row['kind'] for row in self.missed))}"
            f"\n    mistaken: {dict(Counter(row['kind'] for row in self.mistaken))}"
        )


def read_rows(name: str) -> list[Row]:
    """Return the rows of one file of the corpus."""
    lines = (CORPUS / f"{name}.jsonl").read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


def is_unseen(row: Row) -> bool:
    """Say whether a row of a second author's belongs to the third that no rule was improved with."""
    return hashlib.sha256(row["text"].encode()).digest()[0] % 3 == 0


def second_rows(rule: str) -> list[Row]:
    """Return what a second author wrote for a rule without having seen it."""
    return [
        row
        for kind in ("held_out", "fresh")
        if (CORPUS / f"{kind}_{rule}.jsonl").exists()
        for row in read_rows(f"{kind}_{rule}")
    ]


def unseen_rows(rule: str) -> list[Row]:
    """Return what of it was only measured."""
    fresh = read_rows(f"fresh_{rule}") if (CORPUS / f"fresh_{rule}.jsonl").exists() else []
    return [row for row in read_rows(f"held_out_{rule}") if is_unseen(row)] + fresh


@functools.cache
def rows_of(rule: str) -> tuple[Row, ...]:
    """Return everything a rule is measured on."""
    ordinary = read_rows("ordinary")
    rows = read_rows(rule)
    made: list[Row] = list(made_ordinary([row for row in ordinary if not row.get("held_out")]))
    if rule in DISGUISED:
        attacks = [row for row in rows if row["attack"]]
        for held_out in (False, True):
            part = [row for row in attacks if bool(row.get("held_out")) == held_out]
            made += [*disguised(part, 2), *buried(part, ordinary, 4)]
    return (*rows, *second_rows(rule), *ordinary, *made)


def measure(rule: str, rows: Iterable[Row]) -> Figures:
    """Ask a rule about every row."""
    find = system_rules()[rule].find
    assert find is not None
    found_of_kind: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    missed, mistaken, ordinary = [], [], 0
    for row in rows:
        found = bool(find(ScannedText(row["text"]), RuleSettings()))
        if row["attack"]:
            hits, count = found_of_kind[row["kind"]]
            found_of_kind[row["kind"]] = (hits + found, count + 1)
            missed += [] if found else [row]
        else:
            ordinary += 1
            mistaken += [row] if found else []
    attacks = sum(count for _, count in found_of_kind.values())
    hits = attacks - len(missed)
    return Figures(
        attacks=attacks,
        ordinary=ordinary,
        precision=hits / max(1, hits + len(mistaken)),
        recall=hits / max(1, attacks),
        found_of_kind=dict(found_of_kind),
        missed=missed,
        mistaken=mistaken,
    )


@pytest.mark.parametrize("rule", MEASURED)
def test_a_rule_finds_attacks_and_nothing_else(rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(rule)
    whole = measure(rule, rows)
    held_out = [row for row in rows if row.get("held_out")]
    apart = f"\n  held out: {measure(rule, held_out)}" if any(row["attack"] for row in held_out) else ""
    with capsys.disabled():
        sys.stdout.write(f"\n{rule}: {whole}{apart}\n")
    precision, recall = BARS.get(rule, BAR)
    assert (whole.precision >= precision, whole.recall >= recall) == (True, True)


@pytest.mark.parametrize("rule", [rule for rule in MEASURED if rule in DISGUISED])
def test_a_rule_does_as_well_on_texts_it_never_saw(rule: str) -> None:
    figures = measure(rule, [row for row in rows_of(rule) if row.get("held_out")])
    precision, recall = BARS[rule]
    assert (figures.precision >= precision, figures.recall >= recall) == (True, True)


@pytest.mark.parametrize("rule", UNSEEN)
def test_a_rule_does_no_worse_than_it_did_on_texts_of_a_second_author(
    rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = measure(rule, unseen_rows(rule))
    with capsys.disabled():
        sys.stdout.write(f"\n{rule}, unseen: {figures}\n")
    precision, recall = UNSEEN_FLOORS.get(rule, UNSEEN_FLOOR)
    assert (figures.precision >= precision, figures.recall >= recall) == (True, True)


def test_the_corpus_is_large_and_fair() -> None:
    """Enough of both kinds, in many languages, and no text twice."""
    rows = [row for rule in DISGUISED for row in (*read_rows(rule), *second_rows(rule))] + read_rows("ordinary")
    texts = [row["text"] for row in rows]
    assert len(texts) >= 350
    assert len(set(texts)) == len(texts)
    assert len({row["language"] for row in rows}) >= 15
    for rule in DISGUISED:
        measured = rows_of(rule)
        assert sum(not row["attack"] for row in measured) * 2 >= len(measured)

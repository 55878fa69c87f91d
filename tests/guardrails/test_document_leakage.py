"""Markings of documents, in many languages, and the same words where they are only words."""

from __future__ import annotations

import sys

import pytest

from apps.guardrails.findings.scan_types import RuleSettings, ScannedFile
from apps.guardrails.rules.document_leakage import find_in_file
from tests.guardrails.measuring import found, labelled, measured, rows_of

RULE = "document_leakage"


def test_labelled_texts_reach_the_bars(capsys: pytest.CaptureFixture[str]) -> None:
    figures = measured(RULE, labelled(RULE))
    with capsys.disabled():
        sys.stdout.write(f"\n{RULE}, spans of the corpus: {figures}\n")
    assert (figures.precision >= 0.95, figures.recall >= 0.9) == (True, True), figures.failures


def test_half_of_the_texts_only_look_alike() -> None:
    rows = rows_of(RULE)
    assert len(rows) >= 120
    assert sum(not row["attack"] for row in rows) * 2 >= len(rows)


def test_the_marking_on_every_page_is_found() -> None:
    page = "Acme — CONFIDENTIAL — Page {}\n\nRevenue grew.\n\n"
    text = "".join(page.format(number) for number in range(200))
    assert found(RULE, text) == [("MARKING", "CONFIDENTIAL")] * 200


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Plan_CONFIDENTIAL_v2.pdf", "the file's name is marked 'CONFIDENTIAL'"),
        ("org-chart-internal-only.xlsx", "the file's name is marked 'internal only'"),
        ("Bilanz vertraulich.docx", "the file's name is marked 'vertraulich'"),
        ("予算_社外秘.pdf", "the file's name is marked '社外秘'"),
        ("confidentiality-clauses.pdf", None),
        ("internal-links.md", None),
        ("photo.png", None),
        ("", None),
    ],
)
def test_a_file_is_marked_by_its_name(name: str, reason: str | None) -> None:
    assert find_in_file(ScannedFile(name=name, data=b"x"), RuleSettings()) == reason

"""Unreadable files: the rule states why the text of a file could not be looked through."""

from __future__ import annotations

from apps.guardrails.findings.scan_types import RuleSettings, ScannedFile
from apps.guardrails.rules.unreadable_files import find_in_file


def test_a_file_that_was_read_is_fine() -> None:
    assert find_in_file(ScannedFile(name="a.pdf", data=b"%PDF-"), RuleSettings()) is None


def test_a_file_that_was_not_is_stated() -> None:
    file = ScannedFile(name="a.pdf", data=b"%PDF-", unread="it is encrypted")
    assert find_in_file(file, RuleSettings()) == "the file cannot be looked through: it is encrypted"

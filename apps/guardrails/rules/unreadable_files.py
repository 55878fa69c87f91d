"""Unreadable files: documents whose text other rules cannot look through, such as encrypted or damaged ones.

Images and sound have no text to look through, and are not meant.
"""

from __future__ import annotations

from apps.guardrails.findings.scan_types import RuleSettings, ScannedFile

ID = "unreadable_files"
NAME = "Unreadable files"
SUMMARY = "Documents whose text cannot be looked through: encrypted, damaged, or too large"
CATEGORY = "files"
DEFAULT_ENABLED = True
DEFAULT_ACTION = "warn"


def find_in_file(file: ScannedFile, settings: RuleSettings) -> str | None:
    """Return why a file could not be looked through, in words, or None."""
    return f"the file cannot be looked through: {file.unread}" if file.unread else None

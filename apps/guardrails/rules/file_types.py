"""File types: files that are too large, of a type that is not allowed, or not what they claim to be.

Content decides; for a file without content (named by its address) only the stated type.
"""

from __future__ import annotations

import mimetypes

from apps.guardrails.files.mime_sniffing import (
    PLAIN_TEXT,
    UNKNOWN,
    canonical_mime_type,
    find_hidden_content,
    matches_declared_type,
    sniff_mime_type,
)
from apps.guardrails.findings.scan_types import TOOL_RESULT, RuleAction, RuleSettings, ScannedFile

ID = "file_types"
NAME = "File types"
SUMMARY = "Files that are too large, or not of the types below"
CATEGORY = "files"
DEFAULT_ENABLED = True
DEFAULT_ACTION: RuleAction = "block"
ROLE_ACTIONS: dict[str, RuleAction] = {TOOL_RESULT: "neutralize"}

# Types that the operating system's table may lack or name otherwise.
_TYPES = mimetypes.MimeTypes()
for _ending, _type in (
    (".webp", "image/webp"),
    (".avif", "image/avif"),
    (".heic", "image/heic"),
    (".md", "text/markdown"),
):
    _TYPES.add_type(_type, _ending)


def find_in_file(file: ScannedFile, settings: RuleSettings) -> str | None:
    """Return what is wrong with a file, in words, or None."""
    size = file.size if file.data is None else len(file.data)
    if size > settings.max_file_bytes:
        return f"the file has {size} bytes; {settings.max_file_bytes} are allowed"
    if file.data is None:
        stated = _stated_type(file)
        return None if not stated or _is_allowed(stated, settings) else f"files of type {stated} are not allowed"
    if not file.data:
        return "the file is empty"
    return _wrong_with_content(file.data, canonical_mime_type(file.declared_type), settings)


def _wrong_with_content(data: bytes, declared: str, settings: RuleSettings) -> str | None:
    kind = sniff_mime_type(data)
    if declared and not matches_declared_type(declared, kind):
        return f"the file says it is {declared} and its content is {_words_of(kind)}"
    # Text is what it was declared to be: nothing in it could say otherwise.
    names = {kind, declared} if declared and kind in (PLAIN_TEXT, "application/json") else {kind}
    if not any(_is_allowed(name, settings) for name in names):
        return f"files of type {declared if len(names) > 1 else kind} are not allowed"
    hidden = find_hidden_content(data, kind)
    return f"the file is {kind} and holds {hidden} as well" if hidden else None


def _words_of(kind: str) -> str:
    return "of no known type" if kind == UNKNOWN else kind


def _stated_type(file: ScannedFile) -> str:
    """Return the type that the client or the ending of the file's name or address states; empty if neither does."""
    if declared := canonical_mime_type(file.declared_type):
        return declared
    for name in (file.name, (file.address or "").partition("?")[0].partition("#")[0]):
        guessed, encoding = _TYPES.guess_type(name.rpartition("/")[2])
        if guessed:
            return "application/gzip" if encoding == "gzip" else canonical_mime_type(guessed)
    return ""


def _is_allowed(kind: str, settings: RuleSettings) -> bool:
    allowed = {canonical_mime_type(name) or name.strip().lower() for name in settings.allowed_file_types}
    return kind in allowed or f"{kind.partition('/')[0]}/*" in allowed or "*/*" in allowed

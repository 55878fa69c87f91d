"""Steady characters, which normalization leaves as they are but for their case, whatever stands beside them.

Most texts consist of them; each has one normalized form, independent of its neighbors.
"""
# alone: a table computed at import, which the tests check character by character

from __future__ import annotations

import re
import unicodedata

from apps.guardrails.regex.re2_patterns import compile_re2
from apps.guardrails.text.unicode_tables import HOMOGLYPHS, INVISIBLE, STYLED, beyond_ascii, class_of

_INVISIBLE = re.compile(f"[{INVISIBLE}]")
# Ranges of steady characters: the most common letters, signs and pictures.
_WRITTEN = (
    *((0xA1, 0x250), (0x400, 0x482), (0x48A, 0x530), (0x5D0, 0x5EB), (0x620, 0x64B), (0x904, 0x93A), (0xE01, 0xE30)),
    *((0x1EA0, 0x1F00), (0x2010, 0x2028), (0x2030, 0x205E), (0x20A0, 0x20C1), (0x2100, 0x27C0), (0x2900, 0x2C00)),
    *((0x3001, 0x3040), (0x3041, 0x3100), (0x1F300, 0x1F650), (0x1F680, 0x1F700), (0x1F900, 0x1FA00)),
)
# Ideographs and syllables, every one of which is steady.
_EAST_ASIAN = "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
# Characters with another form in every context; a variation selector only says how a character is drawn. Full-width
# punctuation begins with the same two bytes.
_REWRITTEN = (("\u00a0".encode(), b" "), ("\u2026".encode(), b"..."), ("\ufe0f".encode(), b""))
_FULL_WIDTH = "\uff00".encode()[:2]
_REWRITTEN_BESIDE = (
    *((chr(0xFEE0 + ord(sign)).encode(), sign.encode()) for sign in ",():;?!"),
    ("\u3000".encode(), b" "),
)


def replace_fixed_forms(utf8: bytes) -> bytes:
    """Return a text with the other form of the commonest characters that have one wherever they stand."""
    for character, form in (*_REWRITTEN, *(_REWRITTEN_BESIDE if _FULL_WIDTH in utf8 else ())):
        if character[:1] in utf8:
            utf8 = utf8.replace(character, form)
    return utf8


def is_steady(character: str) -> bool:
    """Tell whether a character stays as it is but for its case, and never becomes one with what stands before it."""
    return (
        unicodedata.normalize("NFKC", character) == character
        and unicodedata.combining(character) == 0
        and not (character.isspace() or _INVISIBLE.match(character))
    )


def is_quiet(character: str) -> bool:
    """Tell whether even case and looks change nothing of a steady character."""
    return character.casefold() == character and ord(character) not in STYLED and ord(character) not in HOMOGLYPHS


STEADY = [one for first, end in _WRITTEN for one in map(chr, range(first, end)) if is_steady(one)]
_STEADY, _is_east_asian = frozenset(STEADY), re.compile(f"[{_EAST_ASIAN}]").match
# Unsteady characters, with the character before them: it may become one with that.
UNSTEADY_RUN = compile_re2(f"(?s).?[^\\x00-\\x7f{_EAST_ASIAN}{class_of(STEADY)[1:-1]}]+")


def has_unsteady(utf8: bytes) -> bool:
    """Tell whether a text has a character that is not steady: `UNSTEADY_RUN` matches."""
    return any(one not in _STEADY and not _is_east_asian(one) for one in beyond_ascii(utf8))


def has_unquiet(utf8: bytes) -> bool:
    """Tell whether a text has a character that is not steady, or that case and looks change."""
    return any(not (one in _STEADY and is_quiet(one)) and not _is_east_asian(one) for one in beyond_ascii(utf8))

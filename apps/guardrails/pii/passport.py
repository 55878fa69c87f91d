"""Passport numbers: six to nine letters and digits behind a keyword, and machine-readable zones (MRZ).

It verifies the check digits of ICAO document 9303. A passport's number has no form of its own.
"""

from __future__ import annotations

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern
from apps.guardrails.pii.keyword_number import digits_of, pattern_after_keyword, pattern_before_keyword

_NAMES = (
    r"(?i:\bpassports?\b|\breisepass\w*|\bpassnummer\b|\bpasseport\b|\bpasaporte\b|\bpassaporto\b|\bpassaporte\b|"
    r"\bpaspoort\w*|"
    r"\bpaszport\w*|\bpassnr\.?|\bpass-?nr\b|\btravel documents?\b|паспорт\w*)|护照|護照|パスポート|旅券|여권"
)
_NUMBER = (
    r"(?i:[A-Z]{1,3}\d{5,8}[A-Z]?\d?|[A-Z]\d{3}[A-Z]\d{4}|[CFGHJKL][0-9CFGHJKLMNPRTVWXYZ]{8}|[A-Z]{2}\d{7}|\d{2}[A-Z]{2}\d{5})|"
    r"\d{8,9}"
)
_FEWEST_DIGITS = 3


def _check(candidate: CandidateMatch) -> CandidateMatch | None:
    if len(digits_of(candidate.text)) < _FEWEST_DIGITS:
        return None
    return None if candidate.text.startswith(("RFC", "ISO", "CVE")) else candidate


def _check_lines(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept two lines whose second has right check digits for number, birth and expiry."""
    line = candidate.text.split("\n")[-1].strip("\r ")
    fields = ((line[:9], line[9]), (line[13:19], line[19]), (line[21:27], line[27]))
    return candidate if all(_check_digit(field) == digit for field, digit in fields) else None


def _check_digit(field: str) -> str:
    values = (0 if character == "<" else int(character, 36) for character in field)
    return str(sum(value * (7, 3, 1)[place % 3] for place, value in enumerate(values)) % 10)


PATTERNS = (
    pattern_after_keyword("passport", "PASSPORT", _NAMES, _NUMBER, _check),
    pattern_before_keyword("passport", "PASSPORT", _NAMES, rf"\b(?:{_NUMBER})", _check),
    CandidatePattern(
        "passport",
        "PASSPORT",
        r"\bP[A-Z<][A-Z]{3}[A-Z<]{39}\r?\n ?[A-Z0-9<]{9}\d[A-Z<]{3}\d{7}[MFX<]\d{7}[A-Z0-9<]{16}",
        _check_lines,
    ),
)

"""United States social security numbers (SSN) and taxpayer numbers (ITIN).

It excludes ranges that were never issued and numbers made famous by advertisements. Nine digits in a row need the
word beside them; there is no check digit.
"""

from __future__ import annotations

from stdnum.us import itin, ssn

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern
from apps.guardrails.pii.keyword_number import digits_of, pattern_after_keyword

_NAMES = (
    r"(?i:\bssns?\b|\bsocial security\b|\bsoc\.? sec\.?|\bss#|\btaxpayer id\w*|\bitin\b|social_security\w*|"
    r"seguro social)"
)


def _issued(candidate: CandidateMatch) -> CandidateMatch | None:
    digits = digits_of(candidate.text)
    return candidate if ssn.is_valid(digits) or itin.is_valid(digits) else None


def _check(candidate: CandidateMatch) -> CandidateMatch | None:
    return _issued(candidate) if candidate.stands_alone() and candidate.before(1) not in (b"#", b"$") else None


PATTERNS = (
    CandidatePattern("ssn", "SSN", r"\b\d{3}-\d\d-\d{4}\b", _check, overlapping=True),
    pattern_after_keyword("ssn", "SSN", _NAMES, r"\d{3}[ -]?\d\d[ -]?\d{4}", _issued),
)

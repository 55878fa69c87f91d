"""Numbers of the health service of the United States: Medicare beneficiaries (MBI) and providers (NPI).

The MBI has a unique form (CMS, "Understanding the Medicare Beneficiary Identifier format"); the check digit of the NPI
is Luhn's over the number behind 80840.
"""

from __future__ import annotations

from stdnum import luhn

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern
from apps.guardrails.pii.keyword_number import digits_of, pattern_after_keyword

_LABEL = "HEALTH_ID"
# Letters that are not mistaken for digits.
_LETTER = "[AC-HJKMNP-RT-Y]"
_EITHER = "[0-9AC-HJKMNP-RT-Y]"
_MBI = rf"[1-9]{_LETTER}{_EITHER}\d-?{_LETTER}{_EITHER}\d-?{_LETTER}{{2}}\d\d"
_PROVIDER = r"(?i:\bnpis?\b|\b(?:national )?provider (?:id\w*|number|no\.?))"


def _alone(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept the form with its hyphens; without them it is also that of an article's number."""
    return candidate if candidate.stands_alone() and candidate.text.count("-") == 2 else None


def _provider(candidate: CandidateMatch) -> CandidateMatch | None:
    return candidate if luhn.is_valid("80840" + digits_of(candidate.text)) else None


PATTERNS = (
    CandidatePattern("us_mbi", _LABEL, rf"\b{_MBI}\b", _alone),
    pattern_after_keyword(
        "us_mbi", _LABEL, r"(?i:\bmbi\b|\bmedicare\b|\bbeneficiary id\w*)", _MBI, lambda candidate: candidate
    ),
    pattern_after_keyword("us_npi", _LABEL, _PROVIDER, r"[12]\d{3}[ -]?\d{3}[ -]?\d{3}", _provider),
)

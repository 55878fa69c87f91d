"""Bank accounts without an IBAN: routing numbers of the United States (ABA), and accounts beside their name.

It verifies the checksum of routing numbers and the check digits of Argentina's CBU and Mexico's CLABE.
"""

from __future__ import annotations

from stdnum.ar import cbu
from stdnum.us import rtn

from apps.guardrails.matching.pattern_search import CandidateMatch
from apps.guardrails.pii.keyword_number import digits_of, pattern_after_keyword

_LABEL = "BANK_ACCOUNT"
_WEIGHTS = (3, 7, 1)
_ROUTING = r"(?i:\baba\b|\brouting(?: transit)?(?: no\.?| number| #|\b)|\brtn\b|\bach\b)"
_ACCOUNT = (
    r"(?i:\b(?:bank |checking |savings )?(?:account|acct)\.? ?(?:number|no\b\.?|num\b|#)|\bbank account\b|"
    r"\bkontonummer\b|"
    r"\bnum[ée]ro de compte\b|\bn[úu]mero de cuenta\b|\bconta (?:corrente|banc[áa]ria)\b)|"
    r"银行账号|银行卡号|口座番号|계좌번호"
)


def _routing(candidate: CandidateMatch) -> CandidateMatch | None:
    return candidate if rtn.is_valid(digits_of(candidate.text)) else None


def _is_clabe(number: str) -> bool:
    """Tell whether the last of 18 digits is the check digit: the others weighted 3, 7, 1, each product modulo 10."""
    total = sum(int(digit) * _WEIGHTS[place % 3] % 10 for place, digit in enumerate(number[:17]))
    return len(number) == 18 and (10 - total % 10) % 10 == int(number[17])


def _account(candidate: CandidateMatch) -> CandidateMatch | None:
    digits = digits_of(candidate.text)
    return candidate if len(set(digits)) > 2 else None


PATTERNS = (
    pattern_after_keyword("us_routing", _LABEL, _ROUTING, r"\d{4}[ -]?\d{4}[ -]?\d", _routing),
    pattern_after_keyword(
        "mx_clabe",
        _LABEL,
        r"(?i:\bclabe\b)",
        r"\d{18}",
        lambda candidate: candidate if _is_clabe(candidate.text) else None,
    ),
    pattern_after_keyword(
        "ar_cbu",
        _LABEL,
        r"(?i:\bcbu\b)",
        r"\d{22}",
        lambda candidate: candidate if cbu.is_valid(candidate.text) else None,
    ),
    pattern_after_keyword("bank_account", _LABEL, _ACCOUNT, r"\d{4,6}(?:[ -]?\d{3,6}){1,3}", _account),
)

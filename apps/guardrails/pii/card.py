"""Payment card numbers (ISO/IEC 7812), validated by the Luhn check.

It verifies the issuers' ranges and lengths, the grouping of digits, and the check digit (Luhn). Cards published for
testing count: by their form they are cards.
"""

from __future__ import annotations

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern
from apps.guardrails.pii.keyword_number import digits_of, pattern_after_keyword
from apps.guardrails.regex.re2_patterns import compile_re2

# First digits and length.
_ISSUED = compile_re2(
    r"4\d{12}(?:\d{3}(?:\d{3})?)?"  # Visa
    r"|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}"  # Mastercard
    r"|3[47]\d{13}"  # American Express
    r"|6(?:011|4[4-9]\d|5\d\d)\d{12}(?:\d{3})?"  # Discover
    r"|3(?:0[0-59]|[689]\d)\d{11,16}"  # Diners Club
    r"|35(?:2[89]|[3-8]\d)\d{12}(?:\d{3})?"  # JCB
    r"|(?:62|81)\d{14,17}"  # UnionPay
    r"|220[0-4]\d{12}(?:\d{3})?"  # Mir
    r"|(?:50[0-9]\d|5[6-9]\d\d|6\d\d\d)\d{8,15}"  # Maestro
    r"|60(?:69|8\d)\d{12}|6521\d{12}|508[5-9]\d{12}|81\d{14}"  # RuPay
    r"|(?:636368|438935|504175|451416|636297|5067\d\d|4576\d\d|4011\d\d)\d{10}"  # Elo
)
# Runs of these lengths are too often something else: moments in milliseconds, serial numbers.
_AMBIGUOUS = frozenset({12, 13, 14, 17, 18, 19})
# Luhn's value of every second digit: the sum of the digits of its double.
_DOUBLED = {str(digit): sum(divmod(2 * digit, 10)) for digit in range(10)}
_CARD = compile_re2(
    r"(?i)card|visa|master|amex|diners|maestro|discover|jcb|unionpay|karte|carte|tarjeta|cart[aã]o|carta|卡|カード|"
    r"pan\b|карт|credit|debit|payment|\bcc\b|charge|billing|purchase"
)
_OTHER = compile_re2(
    r"(?i)(?:order|tracking|shipment|invoice|serial|timestamp|trace|span|request|message|event|snowflake|tweet|status)"
    r"[_ ]?(?:id|no|number|nr|#)?\W{0,8}$"
)


def _check(candidate: CandidateMatch) -> CandidateMatch | None:
    digits = digits_of(candidate.text)
    # The cheapest check, which refuses most, comes first.
    if (
        not _passes_luhn_check(digits)
        or not candidate.stands_alone()
        or not _ISSUED.fullmatch(digits)
        or len(set(digits)) < 2
    ):
        return None
    if _OTHER.search(candidate.before(32)):
        return None
    bare = len(digits) == len(candidate.text)
    if not bare or len(digits) not in _AMBIGUOUS:
        return candidate
    return candidate if _CARD.search(candidate.before(48)) or _CARD.search(candidate.after(48)) else None


def _passes_luhn_check(digits: str) -> bool:
    return (sum(map(int, digits[::-2])) + sum(map(_DOUBLED.__getitem__, digits[-2::-2]))) % 10 == 0


_NAMED = (
    r"(?i:\bcards?\b|\bcc\b|\bkreditkarten?\w*|\bkartennummer|\bcarte (?:bancaire|bleue|de cr[ée]dit)|\btarjeta\b|"
    r"\bcart[aã]o\b|\bcarta di credito|\bvisa\b|\bmastercard\b|\bjcb\b|\bdiners\b|\bmaestro\b|\bpan\b)"
)


def _check_named(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept whatever the check digit confirms beside the word; issuers' ranges come and go."""
    digits = digits_of(candidate.text)
    return candidate if _passes_luhn_check(digits) and len(set(digits)) > 2 else None


PATTERNS = (
    pattern_after_keyword("credit_card", "CREDIT_CARD", _NAMED, r"\d(?:[ -]?\d){11,18}", _check_named),
    CandidatePattern(
        "credit_card",
        "CREDIT_CARD",
        r"\b[2-68]\d{3}(?:\d{8,15}"
        r"|(?: +| ?[-.] ?)\d{4}(?: +| ?[-.] ?)\d{4}(?: +| ?[-.] ?)\d{4}(?:(?: +| ?[-.] ?)\d{3})?"
        r"|[ .-]\d{6}[ .-]\d{4,5})\b",
        _check,
        overlapping=True,
    ),
)

"""Numbers of things that lead to who owns them: phones (IMEI) and vehicles (VIN), beside their names.

It verifies the check digits of the IMEI (Luhn) and of North American vehicles (ISO 3779, 49 CFR 565).
"""

from __future__ import annotations

from stdnum import imei

from apps.guardrails.matching.pattern_search import CandidateMatch
from apps.guardrails.pii.keyword_number import digits_of, pattern_after_keyword

_VIN = r"[A-HJ-NPR-Z0-9]{17}"
_VALUES = dict(
    zip("ABCDEFGHJKLMNPRSTUVWXYZ", (1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 7, 9, 2, 3, 4, 5, 6, 7, 8, 9), strict=True)
)
_WEIGHTS = (8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2)


def _has_check_digit(vin: str) -> bool:
    total = sum(
        (int(one) if one.isdigit() else _VALUES[one]) * weight for one, weight in zip(vin, _WEIGHTS, strict=True)
    )
    return "0123456789X"[total % 11] == vin[8]


def _vehicle(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a checked number, or one of the many countries that have no check digit: letters, then digits."""
    vin = candidate.text
    if len(set(vin)) < 6 or not any(one.isalpha() for one in vin):
        return None
    return candidate if _has_check_digit(vin) or (vin[-4:].isdigit() and vin[:3].isalnum()) else None


def _phone(candidate: CandidateMatch) -> CandidateMatch | None:
    digits = digits_of(candidate.text)
    return candidate if imei.is_valid(digits) and len(set(digits)) > 2 else None


PATTERNS = (
    pattern_after_keyword("imei", "DEVICE_ID", r"(?i:\bimei\b(?:/?sv)?)", r"\d{2}[ -]?\d{6}[ -]?\d{6}[ -]?\d", _phone),
    pattern_after_keyword(
        "vin",
        "VEHICLE_ID",
        r"(?i:\bvin\b|\bvehicle id\w*(?: number)?|\bchassis\b|\bfahrgestell\w*|\bbastidor\b|\btelaio\b|"
        r"\bFIN\b)|车架号|車台番号|차대번호",
        _VIN,
        _vehicle,
        r"[^\n]{0,28}?[^0-9A-Za-z\n]",
    ),
)

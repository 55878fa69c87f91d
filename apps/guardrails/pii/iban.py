"""International bank account numbers (ISO 13616): a country's length and form, and two check digits."""

from __future__ import annotations

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern
from apps.guardrails.regex.re2_patterns import compile_re2

# How long an account's number is, by country (SWIFT's registry).
_REGISTERED = (
    "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 "
    "EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 "
    "KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 "
    "PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 "
    "UA29 VA22 VG24 XK20 YE30"
)
_LENGTHS = {item[:2]: int(item[2:]) for item in _REGISTERED.split()}
_GROUP = compile_re2(r"[A-Za-z0-9]+")


def _check(hit: CandidateMatch) -> CandidateMatch | None:
    """Accept as much as the country's numbers are long; the words behind it look like groups."""
    length = _LENGTHS.get(hit.text[:2].upper())
    before, size = hit.before(1), 0
    if length is None or before.isalnum() or before == b"_":
        return None
    for group in _GROUP.finditer(hit.utf8, hit.start, hit.end):
        size += group.end() - group.start()
        if size >= length:
            candidate = hit.truncated(group.end() - hit.start)
            return candidate if size == length and _has_check_digits(candidate.text) else None
    return None


def _has_check_digits(text: str) -> bool:
    """Tell whether the number, its first four characters behind the rest and letters as 10 to 35, is 1 modulo 97."""
    characters = [character for character in text if character.isalnum()]
    return int("".join(str(int(one, 36)) for one in characters[4:] + characters[:4])) % 97 == 1


PATTERNS = (
    CandidatePattern(
        "iban",
        "IBAN",
        r"(?i)\b[A-Z]{2}\d\d(?:[ -]?[A-Z0-9]{4}){2,7}(?:[ -]?[A-Z0-9]{1,3})?\b",
        _check,
        overlapping=True,
    ),
)

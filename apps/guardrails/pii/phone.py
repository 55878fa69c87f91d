"""Telephone numbers: international ones by their form, national ones by a well-known form or the word beside them.

Knows the assigned country codes (ITU-T E.164) and the forms people write. A bare run of digits is no telephone
number unless something says so.
"""

from __future__ import annotations

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern
from apps.guardrails.pii.keyword_number import digits_of, pattern_after_keyword
from apps.guardrails.regex.re2_patterns import compile_re2

_ASSIGNED = (
    "1 7 20 27 30 31 32 33 34 36 39 40 41 43 44 45 46 47 48 49 51 52 53 54 55 56 57 58 60 61 62 63 64 65 66 81 82 "
    "84 86 90 91 92 93 94 95 98 211 212 213 216 218 220 221 222 223 224 225 226 227 228 229 230 231 232 233 234 "
    "235 236 237 238 239 240 241 242 243 244 245 246 247 248 249 250 251 252 253 254 255 256 257 258 260 261 262 "
    "263 264 265 266 267 268 269 290 291 297 298 299 350 351 352 353 354 355 356 357 358 359 370 371 372 373 374 "
    "375 376 377 378 380 381 382 383 385 386 387 389 420 421 423 500 501 502 503 504 505 506 507 508 509 590 591 "
    "592 593 594 595 596 597 598 599 670 672 673 674 675 676 677 678 679 680 681 682 683 685 686 687 688 689 690 "
    "691 692 800 808 850 852 853 855 856 870 878 880 881 882 883 886 888 960 961 962 963 964 965 966 967 968 970 "
    "971 972 973 974 975 976 977 979 992 993 994 995 996 998"
)
_COUNTRIES = frozenset(_ASSIGNED.split())
_FEWEST, _MOST, _FEWEST_BARE = 8, 15, 9
_KEYWORD = compile_re2(
    r"(?i)(?:phone|tel\w*|mobil\w*|cell|fax|handy|number|num|no|nr|is|at|on|me|ist|es|est|é|[:=]|[^ -~])[^A-Z0-9]{0,4}$"
)
_CALLING = (
    r"(?i:\b(?:tele)?phone\b|\bphone(?:_?num(?:ber)?|_?no)\b|\btel\b|\btel\.|\bmobile\b|\bcell\b|\bcellphone\b|"
    r"\bfax\b|\bwhatsapp\b|"
    r"\bsms\b|\bcall (?:me|us|him|her|them|back)\b|\b(?:text|reach|ring) (?:me|us|him|her|them)\b|\bcallback number\b|"
    r"\btelefon\w*|\bhandy\w*|\bmobie?l\w*|\brufnummer\b|\bt[ée]l[ée]phone\b|\bt[ée]l\b|\bportable\b|\btel[ée]fono\b|"
    r"\bcelular\b|\bm[óo]vil\b|\btelefone\b|\bcellulare\b|\btelefoon\w*)|电话|手机|電話|携帯|手機|전화|휴대폰|"
    r"(?i:телефон|тел\.|моб\.|τηλ)|फोन|मोबाइल|هاتف|جوال"
)
_NEVER = frozenset({"2147483647", "4294967295", "9223372036854775807", "1234567890123"})


def _international(hit: CandidateMatch) -> CandidateMatch | None:
    """Accept a country code with as many groups behind it as make a number."""
    if (before := hit.before(1)) and (before.isalnum() or before in b"+._"):
        return None
    groups = compile_re2(r"\d+").finditer(hit.utf8, hit.start, hit.end)
    ends = [match.end() - hit.start for match in groups]
    for end in reversed(ends):
        candidate = hit.truncated(end)
        if (candidate.end == hit.end and hit.after(1).isalnum()) or not _is_international(candidate.text):
            continue
        return candidate
    return None


def _is_international(text: str) -> bool:
    digits = digits_of(text)
    if digits.startswith("00"):
        digits = digits[2:]
        if "." in text and "-" in text:
            return False
    known = any(digits[:length] in _COUNTRIES for length in (1, 2, 3))
    if not known or not _FEWEST <= len(digits) <= _MOST or text.count("(") != text.count(")"):
        return False
    if digits[0] == "1":
        return len(digits) == 11 and digits[1] in "23456789"
    groups = [len(group) for group in compile_re2(r"\d+").findall(text.replace("(0)", ""))]
    return all(size >= 2 for size in (groups[2:-1] if text[-2] == "-" else groups[2:])) and len(groups) <= 7


def _north_american(hit: CandidateMatch) -> CandidateMatch | None:
    """Accept (415) 555-2671 and its like; with blanks or points only numbers that the plan can give."""
    digits = digits_of(hit.text)[-10:]
    if not hit.stands_alone() or digits[0] in "01" or digits[1:3] == "11" or hit.before(1) in (b"+", b"$", b"#"):
        return None
    if hit.after(1) == b"-" and hit.after(2)[1:].isalpha():
        return None
    if "." in hit.text and "-" in hit.text:
        return None  # two kinds of separator: a clause of a code of law
    if hit.text[0] != "(" and "-" not in hit.text and (digits[3] in "01" or _has_numbers_beside(hit)):
        return None
    return hit


def _has_numbers_beside(hit: CandidateMatch) -> bool:
    before, after = hit.before(2), hit.after(2)
    return bool((before[-1:] == b" " and before[:1].isdigit()) or (after[:1] == b" " and after[1:].isdigit()))


def _national(hit: CandidateMatch) -> CandidateMatch | None:
    digits = digits_of(hit.text)
    fewest = 10 if hit.text.count("-") > 1 else 9
    if not hit.stands_alone() or not fewest <= len(digits) <= 12 or _has_numbers_beside(hit):
        return None
    return hit if hit.text.count("(") == hit.text.count(")") else None


def _number_after_keyword(hit: CandidateMatch) -> CandidateMatch | None:
    """Accept what has a number's length; a short bare run only right behind what names it."""
    digits = digits_of(hit.text)
    if len(digits) < _FEWEST_BARE and digits == hit.text and not _KEYWORD.search(hit.before(16)):
        return None
    if not 7 <= len(digits) <= _MOST or digits in _NEVER or len(set(digits)) == 1 or _looks_like_date(hit.text):
        return None
    return hit


def _looks_like_date(text: str) -> bool:
    return bool(compile_re2(r"(?:19|20)\d\d[-/.]\d\d?[-/.]\d\d?|\d\d?[-/.]\d\d?[-/.](?:19|20)\d\d").fullmatch(text))


PATTERNS = (
    CandidatePattern("phone", "PHONE", r"\+[1-9](?:[ .()/-]{0,3}\d){6,16}", _international),
    CandidatePattern("phone", "PHONE", r"\b00[1-9]\d{0,2}[ .()/-]{1,2}\d(?:[ .()/-]{0,3}\d){5,14}", _international),
    CandidatePattern(
        "phone",
        "PHONE",
        r"(?:\b1[-. ])?(?:\([2-9]\d\d\) ?|\b[2-9]\d\d[-. ])\d{3}[-. ]\d{4}\b",
        _north_american,
        overlapping=True,
    ),
    CandidatePattern(
        "phone",
        "PHONE",
        r"\b0[1-9](?:[ .-]\d\d){4}\b|\b06[- ]\d{8}\b|\b0\d{4} \d{5,6}\b|\b0\d{3} \d{3} \d{3,4}\b|\b0\d\d \d{4} \d{4}\b|"
        r"\b04\d\d \d{3} \d{3}\b|"
        r"\(0\d{1,5}\) ?\d{3,8}(?:[ -]\d{3,5})?\b|\b0\d{1,3}-\d{2,4}-\d{4}\b|\b0[1-9]\d{1,3}(?: ?/ ?|[ -])\d{6,8}\b|"
        r"\b0[1-9]\d{1,3}(?: ?/ ?|[ -])\d{3,4} \d{2,5}(?: \d{2})?\b|"
        r"\(\d\d\) ?9?\d{4}-\d{4}\b|\b1[3-9]\d[- ]\d{4}[- ]\d{4}\b",
        _national,
        overlapping=True,
    ),
    pattern_after_keyword("phone", "PHONE", _CALLING, r"\+?\(?\d(?:[ .()/-]{0,2}\d){6,14}", _number_after_keyword),
)

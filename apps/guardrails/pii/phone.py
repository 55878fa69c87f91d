"""Telephone numbers: international ones by their form, national ones by a well-known form or a keyword.

It knows the assigned country codes (ITU-T E.164) and the usual notations. A bare run of digits is no telephone
number unless something says so.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from apps.guardrails.matching.pattern_search import CONTEXT_BYTES, CandidateMatch, CandidatePattern, Check
from apps.guardrails.pii.keyword_number import digits_of, pattern_after_keyword, pattern_before_keyword
from apps.guardrails.regex.re2_patterns import compile_re2

_WORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_COUNTRIES = frozenset(_WORDS["assigned"].split())
_MIN_DIGITS, _MAX_DIGITS, _MIN_BARE_DIGITS = 8, 15, 9
_KEYWORD = compile_re2(
    r"(?i)(?:phone|tel\w*|mobil\w*|cell|fax|handy|number|num|no|nr|is|at|on|me|ist|es|est|é|[:=]|[^ -~])[^A-Z0-9]{0,4}$"
)
_CALLING = "".join(_WORDS["calling"])
# The way on from a firm's number to a person's: "x123", "ext. 12", "#4".
_EXTENSION = (
    r"(?:[,;]? ?(?i:x|ext(?:n|ension)?\.?|доб\.?|anexo|ramal|poste|durchwahl|toestel|anknytning)\.?:? ?|#)\d{1,6}\b"
)
_EXTENDED = compile_re2(rf"{_EXTENSION}$")
_CODE_OF_THINGS = compile_re2(r"(?i)\b(?:isbn|issn|ean|upc|gtin|sku|id|doi)\W{0,4}$")
_NEVER = frozenset({"2147483647", "4294967295", "9223372036854775807", "1234567890123"})


def _international(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a country code with as many groups behind it as make a number."""
    before, grouped = candidate.before(1), " " in candidate.text
    if before and ((before.isalnum() and not (before.isalpha() and grouped)) or before in b"+._"):
        return None
    if candidate.text[0] == "0" and _has_numbers_beside(candidate):
        return None  # a group of a longer number
    groups = compile_re2(r"\d+").finditer(candidate.utf8, candidate.start, candidate.end)
    ends = [match.end() - candidate.start for match in groups]
    for end in reversed(ends):
        candidate = candidate.truncated(end)
        if not candidate.after(1).isalnum() and _is_international(candidate.text):
            return candidate
    return None


def _is_international(text: str) -> bool:
    digits = digits_of(text)
    if digits.startswith(("00", "011")) and text[0] == "0":
        digits = digits[2:] if digits.startswith("00") else digits[3:]
        if "." in text and "-" in text:
            return False
    known = any(digits[:length] in _COUNTRIES for length in (1, 2, 3))
    if not known or not _MIN_DIGITS <= len(digits) <= _MAX_DIGITS or text.count("(") != text.count(")"):
        return False
    if digits[0] == "1":
        return len(digits) == 11 and digits[1] in "23456789"
    groups = [len(group) for group in compile_re2(r"\d+").findall(text.replace("(0)", ""))]
    return all(size >= 2 for size in (groups[2:-1] if text[-2] == "-" else groups[2:])) and len(groups) <= 7


def _north_american(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept (415) 555-2671 and its like; with blanks or points only numbers that the plan can give."""
    digits = digits_of(candidate.text)[-10:]
    if (
        not candidate.stands_alone()
        # Nothing else is written with its first three digits in brackets.
        or (digits[0] in "01" and ")" not in candidate.text)
        or digits[1:3] == "11"
        or candidate.before(1) in (b"+", b"$", b"#")
    ):
        return None
    if candidate.after(1) == b"-" and candidate.after(2)[1:].isalpha():
        return None
    if "." in candidate.text and "-" in candidate.text and ")" not in candidate.text:
        return None  # two kinds of separator: a clause of a code of law
    if (
        ")" not in candidate.text
        and "-" not in candidate.text
        and (digits[3] in "01" or _has_numbers_beside(candidate))
    ):
        return None
    return candidate


def _has_numbers_beside(candidate: CandidateMatch) -> bool:
    before, after = candidate.before(2), candidate.after(2)
    return bool((before[-1:] == b" " and before[:1].isdigit()) or (after[:1] == b" " and after[1:].isdigit()))


def _with_extension(check: Check) -> Check:
    """Return a check that judges a number without its extension, and accepts both."""

    def check_base(candidate: CandidateMatch) -> CandidateMatch | None:
        if (extension := _EXTENDED.search(candidate.utf8, candidate.start, candidate.end)) is None:
            return check(candidate)
        first = max(0, candidate.start - CONTEXT_BYTES)
        around = candidate.utf8[first : extension.start()]
        base = CandidateMatch(around, candidate.start - first, len(around))
        return candidate if check(base) == base else None

    return check_base


def _national(candidate: CandidateMatch) -> CandidateMatch | None:
    digits = digits_of(candidate.text)
    fewest = 10 if candidate.text.count("-") > 1 else 9
    if not candidate.stands_alone() or not fewest <= len(digits) <= 12 or _has_numbers_beside(candidate):
        return None
    return candidate if candidate.text.count("(") == candidate.text.count(")") else None


def _number_after_keyword(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what has a number's length; a short bare run only right behind what names it."""
    digits = digits_of(candidate.text)
    if len(digits) < _MIN_BARE_DIGITS and digits == candidate.text and not _KEYWORD.search(candidate.before(16)):
        return None
    if not 7 <= len(digits) <= _MAX_DIGITS or digits in _NEVER or len(set(digits)) == 1:
        return None
    return None if _looks_like_date(candidate.text) else candidate


def _number_with_extension(candidate: CandidateMatch) -> CandidateMatch | None:
    digits = digits_of(candidate.text)
    before = candidate.before(1)
    return None if before.isalnum() or before in (b"_", b"$") or len(set(digits)) < 4 else candidate


def _number_before_keyword(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what a number in front of its name could be; a run of ten digits may count something else."""
    digits = digits_of(candidate.text)
    if len(set(digits)) < 3 or _looks_like_date(candidate.text) or not 7 <= len(digits) <= _MAX_DIGITS:
        return None
    return None if _CODE_OF_THINGS.search(candidate.before(16)) else candidate


def _looks_like_date(text: str) -> bool:
    return bool(compile_re2(r"(?:19|20)\d\d[-/.]\d\d?[-/.]\d\d?|\d\d?[-/.]\d\d?[-/.](?:19|20)\d\d").fullmatch(text))


_NUMBER = r"(?:\( ?\+?|\+\(? ?)?\d(?:[ .()/-]{0,3}\d){6,14}"
_FORMS: tuple[tuple[str, Check, bool], ...] = (
    (r"\+[1-9](?:[ .()/-]{0,3}\d){6,16}", _international, False),
    (r"\b00[1-9]\d{0,2}[ .()/-]{1,2}\d(?:[ .()/-]{0,3}\d){5,14}", _international, False),
    (r"\b011[ -][1-9]\d{0,2}(?:[ .-]\d{1,4}){2,4}\b", _international, False),
    (
        r"(?:\b1[-. ])?(?:\(\d{3}\)[ .-]?|\b[2-9]\d\d[-. ]|\b\d{3}\)[ .-]?)\d{3}[-. ]\d{4}(?:\b|XX)",
        _north_american,
        True,
    ),
    (
        r"\b0[1-9](?:[ .-]\d\d){4}\b|\b06[- ]\d{8}\b|\b0\d{4} \d{5,6}\b|\b0\d{3} \d{3} \d{3,4}\b|\b0\d\d \d{4} \d{4}\b|"
        r"\b04\d\d \d{3} \d{3}\b|"
        r"\(0\d{1,5}\) ?\d{3,8}(?:[ -]\d{3,5})?\b|\b0\d{1,3}-\d{2,4}-\d{4}\b|\b0[1-9]\d{1,3}(?: ?/ ?|[ -])\d{6,8}\b|"
        r"\b0[1-9]\d{1,3}(?: ?/ ?|[ -])\d{3,4} \d{2,5}(?: \d{2})?\b|"
        r"\(\d\d\) ?9?\d{4}-\d{4}\b|\b1[3-9]\d[- ]\d{4}[- ]\d{4}\b",
        _national,
        True,
    ),
)

# Numbers of orders, parcels and entries.
_CHINESE_OTHER = compile_re2(r"(?:订单|单号|编号|运单|快递|流水|序号|訂單|編號|账号|帐号)[^0-9\n]{0,6}$")
_CHINESE = r"1[3-9]\d{9}"


def _chinese(candidate: CandidateMatch) -> CandidateMatch | None:
    if candidate.after(1).isalnum() or _CHINESE_OTHER.search(candidate.before(40)):
        return None
    return candidate if len(set(candidate.text)) >= 4 else None


PATTERNS = (
    # Mobile numbers of China in a Chinese sentence, which puts no blank before them.
    CandidatePattern(
        "phone",
        "PHONE",
        rf"[\p{{Han}}\x{{ff08}}\x{{ff0c}}\x{{ff1a}}]({_CHINESE})",
        _chinese,
        follow=rf"[ ,;/或和\x{{3001}}\x{{ff0c}}\x{{ff1b}}]{{1,3}}({_CHINESE})",
    ),
    # An extension makes a telephone number of anything that could be one.
    CandidatePattern(
        "phone",
        "PHONE",
        rf"(?:\+|\b|\()\d(?:[ .()/-]{{0,2}}\d){{6,14}}{_EXTENSION}",
        _with_extension(_number_with_extension),
        overlapping=True,
    ),
    *(
        CandidatePattern(
            "phone", "PHONE", form.replace("XX", _EXTENSION), _with_extension(check), overlapping=overlapping
        )
        for form, check, overlapping in _FORMS
    ),
    pattern_after_keyword(
        "phone", "PHONE", _CALLING, rf"{_NUMBER}(?:{_EXTENSION})?", _with_extension(_number_after_keyword)
    ),
    pattern_before_keyword(
        "phone", "PHONE", _CALLING, rf"{_NUMBER}(?:{_EXTENSION})?", _with_extension(_number_before_keyword)
    ),
)

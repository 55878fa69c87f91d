"""Dates of birth: a whole date behind a word that says so, of a person who may be alive."""

from __future__ import annotations

import tomllib
from datetime import date
from pathlib import Path

from apps.guardrails.matching.pattern_search import CandidateMatch
from apps.guardrails.pii.keyword_number import digits_of, pattern_after_keyword
from apps.guardrails.regex.re2_patterns import compile_re2

_BORN = (
    r"(?i:\bdate[ _-]?of[ _-]?birth\b|\bf[öø]dt?(?: den)?|\bsyntynyt|\bnarozen[aý]?|do[gğ]um tarihi|"
    r"\btanggal lahir|ngày sinh|ημερομηνία γέννησης|data nașterii|"
    r"\bd\.?o\.?b\b\.?|\bbirth[ _]?da(?:te|y)\b|\bborn(?: on(?: the)?|:| in \w+ on)?|"
    r"\bgeboren(?: am| op)?|\bgeb\.|"
    r"\bgeburtsdatum|\bn[ée]e? le|\bdate de naissance|\bfecha de nacimiento|\bnacid[oa] el|\bdata di nascita|"
    r"\bnat[oa] il|"
    r"\bdata de nascimento|\bnascid[oa] em|\bgeboortedatum|\bdata urodzenia|\burodzon[ya]|\bf[øö]dselsdato|"
    r"\bf[öø]delsedatum|"
    r"дата рождения|родил(?:ся|ась))|出生日期|出生于|生年月日|생년월일|जन्म तिथि|تاريخ الميلاد"
)
_NAMES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["months"]
_MONTHS = {name: number for number, names in enumerate(_NAMES, start=1) for name in names.split()}
_MONTH = "(?i:" + "|".join(sorted(_MONTHS, key=len, reverse=True)) + ")"
_DATE = (
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}\b|\d{1,2}[-/.] ?\d{1,2}[-/.] ?(?:19|20)?\d\d\b|"
    r"\d{4} ?[年년] ?\d{1,2} ?[月월] ?\d{1,2} ?[日일]|"
    rf"\d{{1,2}}(?i:st|nd|rd|th|\.|er|º)?[ -](?i:of |de )?{_MONTH}\.?,?[ -](?i:de |del )?\d{{4}}\b|"
    rf"{_MONTH}\.? \d{{1,2}}(?i:st|nd|rd|th)?,? \d{{4}}\b"
)
_EARLIEST, _LATEST = 1900, 2100
_WORDS = compile_re2(r"\d+|\p{L}+")


def _check(candidate: CandidateMatch) -> CandidateMatch | None:
    parts = _WORDS.findall(candidate.text)
    numbers = [int(part) for part in parts if part.isdigit()]
    month = next((_MONTHS[part.lower()] for part in parts if part.lower() in _MONTHS), None)
    if month is not None:
        return candidate if len(numbers) == 2 and _is_day(numbers[1], month, numbers[0]) else None
    if len(numbers) != 3:
        return None
    first, second, third = numbers
    if len(parts[0]) == 4:
        return candidate if _is_day(first, second, third) else None
    year = third + 1900 if len(digits_of(parts[-1])) == 2 else third
    return candidate if _is_day(year, second, first) or _is_day(year, first, second) else None


def _is_day(year: int, month: int, day: int) -> bool:
    try:
        return _EARLIEST <= date(year, month, day).year <= _LATEST
    except ValueError:
        return False


PATTERNS = (pattern_after_keyword("date_of_birth", "DATE_OF_BIRTH", _BORN, _DATE, _check),)

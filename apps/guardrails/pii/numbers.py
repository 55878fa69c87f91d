"""Numbers of people and of their belongings: identity, tax, health, accounts, passports, devices.

The numbers are a table (`numbers.toml`). `number_checks` and python-stdnum validate check digits, dates and places.
A number whose form or check is strong stands for itself; the others need their name beside them.
"""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern, Check
from apps.guardrails.matching.text_checks import text_check
from apps.guardrails.pii import number_checks
from apps.guardrails.pii.keyword_number import BEFORE_NAME, GAP, pattern_after_keyword, pattern_before_keyword
from apps.guardrails.regex.re2_patterns import lazy_pattern

_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_MAX_NAME_LENGTH = 96


class _NumberName(NamedTuple):
    """A number that needs one of these words (a pattern) beside it."""

    name: str
    words: str
    pattern: str
    is_valid: Callable[[str], bool]


def _check_of(name: str) -> Callable[[str], bool]:
    """Return the check that a row names: a function of `number_checks`, or a module of python-stdnum ("de.idnr")."""
    if "." not in name:
        return cast(Callable[[str], bool], getattr(number_checks, name))
    module = importlib.import_module(f"stdnum.{name}")
    # Some of these know capitals only.
    return lambda number: bool(module.is_valid(number.upper()))


def _patterns_of(group: Mapping[str, Any]) -> Iterator[CandidatePattern]:
    """Yield what finds the numbers of a group."""
    label, gap, refused = group["label"], group.get("gap", GAP), group.get("not_behind", "").encode()
    for form, pattern, check in group.get("forms", ()):
        yield CandidatePattern(form, label, pattern, _alone(_check_of(check), refused), overlapping=True)
    names = [
        _NumberName(name, words, pattern, _check_of(check)) for name, words, pattern, check in group.get("names", ())
    ]
    for name in names:
        yield pattern_after_keyword(name.name, label, name.words, name.pattern, text_check(name.is_valid), gap)
    match group.get("in_front"):
        case "each":
            for name in names:
                number = rf"\b(?:{name.pattern})"
                yield pattern_before_keyword(name.name, label, name.words, number, text_check(name.is_valid))
        case "together":
            yield _pattern_in_front(label, names)


def _pattern_in_front(label: str, names: Sequence[_NumberName]) -> CandidatePattern:
    words = "|".join(name.words for name in names)
    return CandidatePattern(
        "national_id",
        label,
        rf"\b([A-Za-z]{{0,6}}\d(?:[ ./-]?[0-9A-Za-z]){{5,18}}){BEFORE_NAME}(?:{words})",
        _in_front(names),
        # Without one of the words there is no need to look at every number.
        gate=words,
        overlapping=True,
    )


def _alone(is_valid: Callable[[str], bool], refused: bytes) -> Check:
    """Return the check of a number that stands for itself, and not behind one of the refused signs."""

    def check(candidate: CandidateMatch) -> CandidateMatch | None:
        if not candidate.stands_alone() or any(sign in refused for sign in candidate.before(1)):
            return None
        return candidate if is_valid(candidate.text) else None

    return check


def _in_front(names: Sequence[_NumberName]) -> Check:
    """Return the check of "… is my PESEL": the number of one of the names that stand behind it."""
    known = [
        (lazy_pattern(rf"^(?:{BEFORE_NAME})(?:{name.words})"), lazy_pattern(rf"({name.pattern})$"), name)
        for name in names
    ]

    def check(candidate: CandidateMatch) -> CandidateMatch | None:
        behind = candidate.after(_MAX_NAME_LENGTH)
        text = candidate.text
        for words, number, name in known:
            if words.search(behind) and (match := number.search(text)) and name.is_valid(match.group(1)):
                found = CandidateMatch(candidate.utf8, candidate.end - len(match.group(1).encode()), candidate.end)
                if found.stands_alone():
                    return found
        return None

    return check


PATTERNS = tuple(pattern for group in _TABLE["group"] for pattern in _patterns_of(group))

"""National identification numbers: tax, health, insurance, identity; validated by their checksums.

The numbers are a table (`national.toml`). `national_checks` and python-stdnum validate check digits, dates and places.
A number whose form or check is strong stands for itself; the others need their name beside them.
"""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern
from apps.guardrails.pii import national_checks
from apps.guardrails.pii.keyword_number import BEFORE_NAME, WIDE_GAP, pattern_after_keyword
from apps.guardrails.regex.re2_patterns import lazy_pattern

_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_LABEL = "NATIONAL_ID"
_MAX_NAME_LENGTH = 96


class NumberForm(NamedTuple):
    """A number that stands for itself."""

    name: str
    pattern: str
    is_valid: Callable[[str], bool]


class NumberName(NamedTuple):
    """A number that needs one of these words (a pattern) beside it."""

    name: str
    words: str
    pattern: str
    is_valid: Callable[[str], bool]


def _check_of(name: str) -> Callable[[str], bool]:
    """Return the check that a row names: a function of `national_checks`, or a module of python-stdnum ("de.idnr")."""
    is_stdnum = "." in name
    holder = importlib.import_module(f"stdnum.{name}") if is_stdnum else national_checks
    return cast(Callable[[str], bool], getattr(holder, "is_valid" if is_stdnum else name))


def _patterns_of(forms: Sequence[NumberForm], names: Sequence[NumberName]) -> Iterator[CandidatePattern]:
    """Yield what finds these numbers."""
    for form in forms:
        yield CandidatePattern(form.name, _LABEL, form.pattern, _alone(form.is_valid), overlapping=True)
    for name in names:
        yield pattern_after_keyword(name.name, _LABEL, name.words, name.pattern, _checked(name.is_valid), WIDE_GAP)
    words = "|".join(name.words for name in names)
    yield CandidatePattern(
        "national_id",
        _LABEL,
        rf"\b([A-Za-z]{{0,6}}\d(?:[ ./-]?[0-9A-Za-z]){{5,18}}){BEFORE_NAME}(?:{words})",
        _in_front(names),
        # Without one of the words there is no need to look at every number.
        gate=words,
        overlapping=True,
    )


def _checked(is_valid: Callable[[str], bool]) -> Callable[[CandidateMatch], CandidateMatch | None]:
    return lambda candidate: candidate if is_valid(candidate.text) else None


def _alone(is_valid: Callable[[str], bool]) -> Callable[[CandidateMatch], CandidateMatch | None]:
    return lambda candidate: candidate if candidate.stands_alone() and is_valid(candidate.text) else None


def _in_front(names: Sequence[NumberName]) -> Callable[[CandidateMatch], CandidateMatch | None]:
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


def _patterns_of_table() -> Iterator[CandidatePattern]:
    for group in _TABLE["group"]:
        yield from _patterns_of(
            [NumberForm(name, pattern, _check_of(check)) for name, pattern, check in group["forms"]],
            [NumberName(name, words, pattern, _check_of(check)) for name, words, pattern, check in group["names"]],
        )


PATTERNS = tuple(_patterns_of_table())

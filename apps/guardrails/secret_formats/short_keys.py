"""Short keys beside their names, quoted or as a whole argument: eight signs and more that somebody or something made.

Knows which short values somebody or something made: letters, digits and signs that take turns, and no run of letters
that reads like a word. Names of formats, versions and machines mix letters and digits too, but around words. What
stands for a key, a test's key and a digest pass, as in `named_values`, which knows the longer ones.
"""

from __future__ import annotations

from itertools import pairwise

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern, Check
from apps.guardrails.regex.re2_patterns import compile_re2
from apps.guardrails.secret_formats.assignments import is_harmless_name, is_test_key
from apps.guardrails.secret_formats.chosen_passwords import is_no_value, is_word_for_password
from apps.guardrails.secret_formats.entropy import entropy, reads_like_words

_LEAST, _LEAST_BITS, _LEAST_TURNS, _LEAST_TURNS_BARE = 8, 2.5, 2, 3
# A run of so many letters is looked at; so many pairs of it must be rare in words.
_RUN, _LIKE_WORDS = 4, 0.4
_PART = compile_re2(r"[A-Za-z]+|[0-9]+|[^A-Za-z0-9]")
_LETTERS = compile_re2(r"[A-Z]?[a-z]{3,}|[A-Z]{4,}")
_SEPARATED = compile_re2(r"^[a-z]+\d?(?:[-_][a-z0-9]+)+$|^[0-9]+[-_][0-9-_]+$|^[a-z]+\d+$|^[A-Za-z]+\d{1,4}$|^0x")
# Names that say a key, whole.
_NAME = (
    r"(?:(?:api|app|access|auth|refresh|bearer|bot|secret|private|client|license|account|master|signing|encryption|service"
    r"|hmac|session|cookie|webhook|jwt|deploy|admin)[_-]?(?:key|token|secret)|(?:\b|_)(?:token|secret)|\botp_?(?:seed|secret))"
    r"\d?"
)
_OPEN = r"[$@bruf]{0,2}[\"'`]"
_VALUE = r"([0-9A-Za-z!@#$%^&*+=?_~-]{8,24})"
_IS = (
    r"(?:[\"'`\])]{0,3}(?: ?: ?(?:str|string|String|&str)\b)?\s{0,3}(?::=|={1,3}>?|!==?|->|:|\(|\.equals\()\s{0,3}"
    r"|[\"'`]\s?,\s?|[\"']\s{1,4}value=)"
)


def _is_made(text: str, turns: int) -> bool:
    """Tell whether a short value is of characters that take turns, without a word among them."""
    if is_no_value(text) or is_word_for_password(text) or is_test_key(text) or _SEPARATED.search(text):
        return False
    digits = sum(map(str.isdigit, text))
    if not digits or digits > len(text) - 2 or len(set(text)) < _LEAST - 2 or entropy(text) < _LEAST_BITS:
        return False
    if any(reads_like_words(run.decode() * 2, _LIKE_WORDS) for run in _LETTERS.findall(text.encode())):
        return False
    kinds = [part.decode() for part in _PART.findall(text.encode())]
    changes = sum(one.islower() != two.islower() for one, two in pairwise(text) if one.isalpha() and two.isalpha())
    return len(kinds) - 1 + changes // 2 >= turns


def _judged(candidate: CandidateMatch, turns: int) -> CandidateMatch | None:
    return None if is_harmless_name(candidate.before(48)) or not _is_made(candidate.text, turns) else candidate


def _literal(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a quoted value that was made, right beside the name of a key."""
    return _judged(candidate, _LEAST_TURNS)


def _argument(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a value without quotes: its characters must take turns more often."""
    return _judged(candidate, _LEAST_TURNS_BARE)


def _key(pattern: str, gate: str, check: Check) -> CandidatePattern:
    return CandidatePattern("short_key", "SECRET", f"(?i){pattern}", check, f"(?i){gate}")


# What texts must hold: a digit in what stands behind the name.
_TO_A_DIGIT = r"[A-Za-z!@#$%^&*+=?_~-]*[0-9]"

PATTERNS = (
    _key(rf"{_NAME}{_IS}{_OPEN}{_VALUE}[\"'`]", rf"{_NAME}{_IS}{_OPEN}{_TO_A_DIGIT}", _literal),
    _key(
        rf"(?:^|\s)--?[a-z0-9-]{{0,24}}(?:key|token|secret)[ =]{_VALUE}(?:\s|$)",
        rf"\s--?[a-z0-9-]*(?:key|token|secret)[ =]{_TO_A_DIGIT}|^--?[a-z0-9-]*(?:key|token|secret)[ =]{_TO_A_DIGIT}",
        _argument,
    ),
    CandidatePattern(
        "short_key",
        "SECRET",
        rf"(?im)^[ \t]*(?:export |set |env )?[a-z0-9_.]{{0,24}}{_NAME}(?: ?= ?| -> |: ){_VALUE}[ \t\r]*$",
        _argument,
        gate=rf"(?i){_NAME}(?: ?= ?| -> |: ){_TO_A_DIGIT}",
    ),
)

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
from apps.guardrails.secret_formats.stand_in_words import has_word_of_its_own, is_something_described

_LEAST, _LEAST_BITS, _LEAST_TURNS, _LEAST_TURNS_BARE = 8, 2.3, 2, 3
_LEAST_DIGITS = 3
_WORD_FIRST = compile_re2(r"^[A-Za-z]{4,}[!@#$%^&*+=?_~-]?[0-9]+[!@#$%^&*+=?]?$")
_FORMAT = compile_re2(
    r"(?i)^(?:b?float|u?int|sha|utf|base|bits?|win|linux|version|release|build|port|page|item|row|line|step|model|user|group"
    r"|part|level|test|demo|node|host|server|client|error|code|http|ipv|rsa|hmac|chacha|poly|room|file|table|column|rule)[_-]?\d"
)
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
# Those of which a word with a number is one as well, and those whose word alone is.
_CHOSEN = r"(?:(?:api|app|access|auth|secret|signing|encryption|client|master|license)[_-]?key|secret)\d?"
_COMPOUND = r"(?:client|app|consumer|jwt|session|cookie|webhook|signing|shared|api|auth|hmac|token)[_-]?secret"
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


def _is_whole(candidate: CandidateMatch) -> bool:
    """Tell whether a value ends where it was taken to end: at a blank or a quote."""
    return candidate.after(1) in (b"", b" ", b"\t", b"\r", b"\n", b'"', b"'", b"`")


def _judged(candidate: CandidateMatch, turns: int) -> CandidateMatch | None:
    harmless = is_harmless_name(candidate.before(48)) or not _is_whole(candidate)
    return None if harmless or not _is_made(candidate.text, turns) else candidate


def _literal(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a quoted value that was made, right beside the name of a key."""
    return _judged(candidate, _LEAST_TURNS)


def _argument(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a value without quotes: its characters must take turns more often."""
    return _judged(candidate, _LEAST_TURNS_BARE)


def _word_with_number(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a word of its own with digits or signs behind it, as people choose them: no format and no version."""
    text = candidate.text
    if is_no_value(text) or is_word_for_password(text) or is_test_key(text):
        return None
    if is_harmless_name(candidate.before(48)) or not _is_whole(candidate):
        return None
    digits = sum(map(str.isdigit, text))
    chosen = digits >= _LEAST_DIGITS and _WORD_FIRST.search(text) and not _FORMAT.search(text)
    return candidate if chosen and has_word_of_its_own(text) else None


def _word(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a word of its own in small letters that describes nothing."""
    text = candidate.text
    if is_harmless_name(candidate.before(48)) or is_no_value(text) or is_something_described(text):
        return None
    return candidate if has_word_of_its_own(text) and len(set(text)) >= _LEAST - 2 else None


def _key(pattern: str, gate: str, check: Check) -> CandidatePattern:
    return CandidatePattern("short_key", "SECRET", f"(?i){pattern}", check, f"(?i){gate}")


# What texts must hold: a digit in what stands behind the name.
_TO_A_DIGIT = r"[A-Za-z!@#$%^&*+=?_~-]*[0-9]"

PATTERNS = (
    _key(rf"{_NAME}{_IS}{_OPEN}{_VALUE}[\"'`]", rf"{_NAME}{_IS}{_OPEN}{_TO_A_DIGIT}", _literal),
    _key(
        rf"(?:^|\s)--?[a-z0-9-]{{0,24}}(?:key|token|secret)[ =]{_VALUE}",
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
    _key(rf"{_CHOSEN}{_IS}{_OPEN}{_VALUE}[\"'`]", rf"{_CHOSEN}{_IS}{_OPEN}{_TO_A_DIGIT}", _word_with_number),
    _key(
        rf"(?:^|\s)(?:--?[a-z0-9-]{{0,24}}|(?:export |set |env )[a-z0-9_]{{0,24}}){_CHOSEN}[ =]{_VALUE}",
        rf"{_CHOSEN}[ =]{_TO_A_DIGIT}",
        _word_with_number,
    ),
    _key(
        rf"{_COMPOUND}\d?(?:\.equals\(|[\"']\s?,\s?|[\"']\s{{1,4}}value=|\()\s?[\"']((?-i:[a-z]{{8,40}}))[\"']",
        rf"{_COMPOUND}\d?(?:\.equals\(|[\"']\s?,\s?|[\"']\s+value=|\()\s?[\"'][a-z]",
        _word,
    ),
    CandidatePattern(
        "short_key",
        "SECRET",
        rf"(?im)^[ \t]*(?:export |set |env )?[a-z0-9_.]{{0,24}}{_COMPOUND} ?= ?((?-i:[a-z]{{8,40}}))[ \t\r]*$",
        _word,
        gate=rf"(?i){_COMPOUND} ?= ?[a-z]",
    ),
)

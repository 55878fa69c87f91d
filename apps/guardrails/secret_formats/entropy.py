"""Shannon entropy, placeholders and examples: what speaks against a candidate being a secret."""

from __future__ import annotations

import math
import re
import string
import tomllib
from collections import Counter
from itertools import pairwise
from pathlib import Path

from apps.guardrails.regex.re2_patterns import compile_re2

# Bytes of made values, with every digit as a zero and all others as blanks; the least length of such a value, and those
# that may have no digit.
_MADE_OF = bytes(
    48 if 48 <= code <= 57 else code if re.match(r"[A-Za-z_.=/+%~:|!@#$^*-]", chr(code)) else 32 for code in range(256)
)
_LEAST_MADE, _WITHOUT_DIGIT = 12, re.compile(rb"[A-Za-z]{20}|[a-fA-F]{8}-")
WORDS = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
_LOWER, _UPPER, _DIGITS = (kind.encode() for kind in (string.ascii_lowercase, string.ascii_uppercase, string.digits))
# Placeholders for secrets in documentation, templates and tests.
_STAND_IN = compile_re2(
    r"(?i)example|sample|placeholder|dummy|change[-_]?(?:me|this|it)|replace|redacted|your[-_]|[-_]here\b|insert|"
    r"not[-_]?a[-_]?real|fake"
    r"|x{4}|\*{3}|\.{3}|…|•{3}|#{4}|0{8}|1{8}|a{6}|_{4}|\$\{|\$\(|\{\{|\}\}|^&lt;|^\$[A-Za-z_]|<[A-Za-z][^>]*>|"
    r"^%[A-Za-z(]|^@|\[REDACTED|_REDACTED"
    r"|^(?:test|valid|invalid|wrong|incorrect|secure|strong|demo)[-_]?(?:pass(?:word|wd)?)?[@#!]?(?:123|1234|12345|1)?[!@#$%]{0,3}$"
    r"|(?:0123456|1234567|9876543|abcdefg|abcd1234|abc123|qwerty|asdfasdf|foobar|deadbeef|loremipsum|my[-_]?(?:(?:access|api|auth)[-_]?)?(?:secret|token|"
    r"key|password))"
)

# The pairs of letters that words of European languages are mostly made of; of made letters, a quarter of the pairs.
_COMMON_PAIRS = frozenset(WORDS["common_pairs"].split())
_ENOUGH_PAIRS, _LIKE_WORDS, _LIKE_WORDS_MIXED, _LIKE_NAMES, _MIXED_DIGITS = 4, 0.5, 0.6, 0.42, 2
# So many times do letters and digits, or capitals side by side, take turns in no identifier.
_TURNS, _RUNS, _LIKE_NAMES_IN_RUNS = 6, 3, 0.6
_LEAST_LETTERS, _LEAST_OF_ONE_CASE, _LEAST_CHANGES, _LETTERS_BITS = 20, 24, 3, 3.3
_HEX = compile_re2(r"^[0-9a-fA-F-]+$")
# Dots in place of the rest of a value, perhaps on a line of their own.
_LEFT_OUT = compile_re2(r"^(?:\s|\\[nr]){0,4}(?:\.{3}|…)")


def is_placeholder(text: str) -> bool:
    """Tell whether a text is written to stand for a secret."""
    return bool(_STAND_IN.search(text))


def is_shortened(after: bytes) -> bool:
    """Tell whether a value is shown in part: dots follow it."""
    return bool(_LEFT_OUT.search(after))


def entropy(text: str) -> float:
    """Return Shannon's entropy of a text's characters, in bits a character."""
    length = len(text)
    return -sum(count / length * math.log2(count / length) for count in Counter(text).values())


def is_random(text: str, least: float) -> bool:
    """Tell whether a token's characters are as mixed as those of a made one: `least` bits each, and no stand-in."""
    return bool(text) and entropy(text) >= least and not is_placeholder(text)


def count_character_classes(text: str) -> int:
    """Return how many of lower case, upper case, digits and signs a text has; letters beyond ASCII are signs."""
    utf8 = text.encode("utf-8", "replace")
    without = [len(utf8.translate(None, kind)) < len(utf8) for kind in (_LOWER, _UPPER, _DIGITS)]
    return sum(without) + bool(utf8.translate(None, _LOWER + _UPPER + _DIGITS))


def has_letters_and_digits(text: str) -> bool:
    """Tell whether a text has both."""
    utf8 = text.encode("utf-8", "replace")
    letters = len(utf8.translate(None, _LOWER + _UPPER)) < len(utf8)
    return letters and len(utf8.translate(None, _DIGITS)) < len(utf8)


def count_turns(text: str) -> int:
    """Return how many times a letter follows a digit, or a digit a letter."""
    kinds = [one.isdigit() for one in text if one.isalnum()]
    return sum(one != two for one, two in pairwise(kinds))


def reads_like_words(text: str, share: float = _LIKE_WORDS) -> bool:
    """Tell whether a token is put together from words, as identifiers are; made ones have any letters side by side."""
    if _HEX.match(text):
        return False
    lower = text.lower()
    pairs = [pair for pair in map("".join, pairwise(lower)) if pair.isalpha()]
    return len(pairs) >= _ENOUGH_PAIRS and sum(pair in _COMMON_PAIRS for pair in pairs) / len(pairs) > share


def is_generated(text: str, least: float = 3.0) -> bool:
    """Tell whether a program made a value from letters and digits: random, and not of words."""
    return has_letters_and_digits(text) and is_random(text, least) and not reads_like_words(text)


def is_put_together_from_words(text: str) -> bool:
    """Tell whether a value right beside the name of a key reads like words: mixed ones must do so more clearly."""
    if count_turns(text) >= _TURNS:
        return False
    mixed = text not in (text.lower(), text.upper()) and sum(map(str.isdigit, text)) >= _MIXED_DIGITS
    return reads_like_words(text, _LIKE_WORDS_MIXED if mixed else _LIKE_WORDS)


def find_made_runs(utf8: bytes) -> list[tuple[int, int]]:
    """Return the ends and beginnings of runs of signs of made values: long ones, with a digit or as letters alone.

    A value beside the name of a key is in one of them; every second text of programs has names of keys.
    """
    signs = utf8.translate(_MADE_OF)
    found, at = [], 0
    for run in [run for run in signs.split() if len(run) >= _LEAST_MADE]:
        if b"0" in run or _WITHOUT_DIGIT.search(run):
            at = signs.find(run, at) + len(run)
            found.append((at, at - len(run)))
    return found


def is_made_of_letters(text: str, least: int = _LEAST_LETTERS) -> bool:
    """Tell whether letters alone are a made token: long, and mixed as in no name."""
    if len(text) < least or not (text.isascii() and text.isalpha()):
        return False
    runs = sum(one.isupper() and two.isupper() for one, two in pairwise(text))
    if text.islower() or text.isupper():
        long = len(text) >= _LEAST_OF_ONE_CASE and entropy(text) >= _LETTERS_BITS
        return long and not reads_like_words(text, _LIKE_NAMES)
    if reads_like_words(text, _LIKE_NAMES_IN_RUNS if runs >= _RUNS else _LIKE_NAMES):
        return False
    changes = sum(one.islower() and two.isupper() for one, two in pairwise(text))
    return changes >= _LEAST_CHANGES and runs >= 1 and entropy(text) >= min(_LETTERS_BITS, _bits_of(len(text)))


def _bits_of(length: int) -> float:
    """Return what a made token of so many letters has at least: a letter or two come twice."""
    return math.log2(length) - 0.5

"""What speaks against a candidate being a secret: that it is a placeholder, a documented example, or too regular.

Knows how examples are written. Must never know a form of secret.
"""

from __future__ import annotations

import math
import string
from collections import Counter

from apps.guardrails.regex.re2_patterns import compile_re2

_LOWER, _UPPER, _DIGITS = (kind.encode() for kind in (string.ascii_lowercase, string.ascii_uppercase, string.digits))
# What stands for a secret in documentation, templates and tests.
_STAND_IN = compile_re2(
    r"(?i)example|sample|placeholder|dummy|change[-_]?(?:me|this|it)|replace|redacted|your[-_]|[-_]here\b|insert|"
    r"not[-_]?a[-_]?real|fake"
    r"|x{4}|\*{3}|\.{3}|…|•{3}|#{4}|0{8}|1{8}|a{6}|_{4}|\$\{|\$\(|\{\{|\}\}|^\$[A-Za-z_]|<[A-Za-z][^>]*>|"
    r"^%[A-Za-z(]|^@|\[REDACTED|_REDACTED"
    r"|(?:0123456|1234567|9876543|abcdefg|abcd1234|abc123|qwerty|foobar|deadbeef|loremipsum|my[-_]?(?:secret|token|"
    r"key|password))"
)


def is_placeholder(text: str) -> bool:
    """Tell whether a text is written to stand for a secret."""
    return bool(_STAND_IN.search(text))


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

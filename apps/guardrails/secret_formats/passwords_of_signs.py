"""Passwords of any signs, as managers make them: `password = "c2d+8uv&v}Th)o.--:<c*"`.

Knows that a literal beside the name of a password which mixes letters of both cases, digits and signs, without a word
in it, is no code, whatever its signs mean elsewhere. Templates, expressions and addresses pass.
"""

from __future__ import annotations

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern
from apps.guardrails.regex.re2_patterns import compile_re2
from apps.guardrails.secret_formats.assignments import NAMES_OF_PASSWORDS, is_harmless_name, is_hash
from apps.guardrails.secret_formats.chosen_passwords import is_other_name
from apps.guardrails.secret_formats.entropy import count_character_classes, entropy

_NAME = rf"(?:{NAMES_OF_PASSWORDS})[a-z0-9_-]{{0,12}}"
_KEY = (
    r"(?:secret|token|creds?\b|credentials?|bearer|(?:api|access|auth|secret|private|master|encryption|signing)[_-]?key)"
    r"[a-z0-9_-]{0,12}"
)
_CLOSE = r"\\{0,3}[\"'`\]\\)}]{0,4}(?: {0,3}: ?(?:str|string|&str|char)\b\??| (?:as )?string)?"
_OPERATOR = r"\s{0,3}(?::?={1,3}>?|!={1,2}|\?:|\|\||\?\?|or\b|:|,|->|\(|value=)\s{0,3}"
_ALL_CLASSES, _LEAST_BITS = 4, 3.2
# Signs of templates, expressions, markup and addresses, and a word of five letters.
_CODE = compile_re2(
    r"://|\$[{(A-Za-z]|\{\{|#\{|%[({sd]|\{[A-Za-z_][\w.]*\}|</|/>|=>|->|::|\(\)|&&|\|\||\\|^[(<\[{].*[)>\]}]$|^\^|\$$|[a-z]{5}"
    r"|[A-Z]{6}|\w\.\w+\(|\[\w+\]|^[./~]"
)


def _of_signs(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what has all four kinds of characters and neither a word nor a form of code in it."""
    text = candidate.text
    if is_hash(text) or _CODE.search(text) or count_character_classes(text) < _ALL_CLASSES:
        return None
    before = candidate.before(48)
    return None if entropy(text) < _LEAST_BITS or is_other_name(before) or is_harmless_name(before) else candidate


PATTERNS = (
    CandidatePattern(
        "chosen_password",
        "PASSWORD",
        rf"(?i){_NAME}{_CLOSE}{_OPERATOR}[$@bruf]{{0,2}}[\"'`]([^\s\"'`][^\s\"`]{{9,60}}?)[\"'`](?:[,;:)\s\]}}/>]|$)",
        _of_signs,
        gate=rf"(?i){_NAME}{_CLOSE}{_OPERATOR}[$@bruf]*[\"'`][^\s\"'`]",
    ),
    CandidatePattern(
        "chosen_password",
        "PASSWORD",
        rf"(?im)^[ \t-]{{0,12}}(?:export |env |set )?[\w.-]{{0,32}}{_NAME} ?[:=] ?"
        r"([^\s\"'`][^\s\"'`]{8,60}[^\s\"'`,;])[ \t\r]*$",
        _of_signs,
        gate=rf"(?i){_NAME} ?[:=] ?[^\s\"'`]",
    ),
    # Tokens and keys, where a sign that no identifier has stands in the value.
    CandidatePattern(
        "chosen_password",
        "SECRET",
        rf"(?i){_KEY}{_CLOSE}{_OPERATOR}(?:[$@bruf]{{0,2}}[\"'`])?([^\s\"'`&][^\s\"'`&]{{9,60}})[\"'`]?(?:[,;:)\s\]}}/>]|$)",
        _of_signs,
        gate=rf"(?i){_KEY}{_CLOSE}{_OPERATOR}[$@bruf]*[\"'`]?[^\s\"'`]+[!#%^&*?+][^\s\"'`]",
    ),
)

"""Keys that programs give to names of ciphers, signatures and interfaces, wrapped in a call or listed sign by sign.

Knows the names that linters list (`cipherKey`, `signKey`, `apiKey`), the calls in which programs wrap a literal
(`getBytes`, `BASE64.encode`, `[]byte`), imports of libraries that sign, and arrays of characters. What stands for a
key, a method, a type and a variable pass, as in `chosen_passwords`.
"""

from __future__ import annotations

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern, Check
from apps.guardrails.regex.re2_patterns import compile_re2
from apps.guardrails.secret_formats.assignments import is_harmless_name, is_something_else, is_test_key
from apps.guardrails.secret_formats.chosen_passwords import is_no_password, is_stand_in
from apps.guardrails.secret_formats.entropy import (
    count_character_classes,
    entropy,
    has_letters_and_digits,
    is_random,
    reads_like_words,
)
from apps.guardrails.secret_formats.passwords_as_arguments import (
    ARGUMENT,
    BEGINS,
    LITERAL,
    NEXT,
    accept_argument_of_call,
)

# What texts must hold to be searched for literals that have two digits.
_TO_A_DIGIT = r"[^\s\"'`<>\\]*[0-9]"
_LEAST_MIXED, _LEAST_BITS, _LEAST_HEADER = 6, 2.2, 12
# What names of keys end with, and what stands between one and its value.
_API_KEY = r"(?:\b|_)(?:api|app|access|auth|service|client|user|admin|rest|x)_?-?key\d?"
_CIPHER = (
    r"(?:cipher|crypt|aes|3?des|hmac|mac|rsa|sign(?:ing|ature)?|enc(?:ryption)?|dec(?:ryption)?|private|cert|jwt|token"
    r"|session|cookie)"
)
_IS = r"[\"'\])]{0,3}(?: ?: ?(?:str|string|String|&str)\b)?\s{0,3}(?::=|={1,3}>?|!==?|=>|:|,)\s{0,3}"
# Names of credentials that programs give literals to, and what they put behind them.
_CREDENTIAL = (
    r"(?:credentials?|bearer|token|secret|passw(?:or)?d|pwd|auth|salt|(?:\b|_|[a-z])key|(?:\b|_)(?:creds?|tok|pass|pw|iv|seed))"
    r"(?:_?(?:value|val|data|str(?:ing)?|text|prod|dev|raw|b64|base64|hex|bytes))?\d?"
)
_LEAST_MADE, _LONG, _PARTS = 10, 16, compile_re2(r"[ .:_-]|/\w+/")
# Schemes whose values say themselves whether they are a login.
_SCHEMES = compile_re2(r"(?i)(?:basic|digest|aws4[\w-]*) +$")
_SIGNED = compile_re2(r"(?i)jsonwebtoken|\bjwt\b|jose")
_CHARACTERS = r"(?:L?'[^'\\]'|\"[^\"\\]\")"
_ONE_CHARACTER = compile_re2(r"[\"']([^\"'\\])[\"']")
_NO_KEY = compile_re2(
    r"(?i)^(?:header|query|cookie|body|path|basic|bearer|oauth2?|apikey|none|default|string|in:|x-|v\d"
    r"|\w*(?:key|token|auth|id)$)"
)


def _mixed_key(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a short literal that a program gives to an API key: letters with digits, no version and no name."""
    text = candidate.text
    if len(text) < _LEAST_MIXED or is_stand_in(text) or _NO_KEY.search(text):
        return None
    if is_harmless_name(candidate.before(48)) or is_test_key(text) or is_something_else(text):
        return None
    if not has_letters_and_digits(text) or entropy(text) < _LEAST_BITS:
        return None
    digits = sum(map(str.isdigit, text))
    return candidate if digits >= 2 else None


def _word_key(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept letters that a program gives to an API key: no name of a place or a setting, and no words in a row."""
    text = candidate.text
    if _NO_KEY.search(text) or is_no_password(text) or is_harmless_name(candidate.before(48)):
        return None
    return candidate if text.islower() and len(set(text)) >= _LEAST_MIXED else None


def _made_literal(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a literal of letters and digits that was made, right behind the name of a credential and a sign."""
    text, before = candidate.text, candidate.before(48)
    if is_harmless_name(before) or is_test_key(text) or is_stand_in(text) or is_something_else(text):
        return None
    if len(text) < _LEAST_MADE or not has_letters_and_digits(text) or _PARTS.search(text):
        return None
    digits = sum(map(str.isdigit, text))
    mixed = digits >= 2 and (count_character_classes(text) >= 3 or (len(text) >= _LONG and digits >= 4))
    return candidate if mixed and entropy(text) >= 3.0 and not reads_like_words(text) else None


def _cipher_key(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a literal for a cipher or a signature that has letters and digits and is neither a method nor a name."""
    text = candidate.text
    if is_stand_in(text) or is_something_else(text) or not has_letters_and_digits(text):
        return None
    made = entropy(text) >= 2.8 and (sum(map(str.isdigit, text)) >= 2 or count_character_classes(text) >= 3)
    return accept_argument_of_call(candidate) if made else None


def _imported(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept the second argument of `sign` where a library that signs tokens is named beside it."""
    around = candidate.before(256) + candidate.after(64)
    return accept_argument_of_call(candidate) if _SIGNED.search(around) else None


def _wrapped(candidate: CandidateMatch) -> CandidateMatch | None:
    return None if is_stand_in(candidate.text) else accept_argument_of_call(candidate)


def _characters(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept characters that make up a word that stands for nothing."""
    text = b"".join(_ONE_CHARACTER.findall(candidate.text.encode())).decode("utf-8", "replace")
    return None if is_stand_in(text) or len(set(text)) < 3 else candidate


def _header(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what a header of a request authorizes with, whatever the scheme is called."""
    text = candidate.text
    if (
        _SCHEMES.search(candidate.before(24))
        or len(text) < _LEAST_HEADER
        or not has_letters_and_digits(text)
        or is_something_else(text)
    ):
        return None
    digits = sum(map(str.isdigit, text))
    return candidate if digits >= 2 and is_random(text, 3.0) and not reads_like_words(text) else None


def _uuid(candidate: CandidateMatch) -> CandidateMatch | None:
    return candidate if is_random(candidate.text, 2.7) else None


def _key(pattern: str, gate: str, check: Check) -> CandidatePattern:
    return CandidatePattern("key_in_program", "SECRET", f"(?i){pattern}", check, f"(?i){gate}")


PATTERNS = (
    _key(
        rf"{_API_KEY}{_IS}{LITERAL}",
        rf"{_API_KEY}[\"'\])]*(?: ?: ?(?:str|string|&str)\b)?\s*[:=!,>]+\s*{BEGINS}{_TO_A_DIGIT}",
        _mixed_key,
    ),
    _key(
        r"(?:\b|_)api_?key\d?[\"'\])]{0,3}\s{0,3}(?::=|={1,3}>?|:)\s{0,3}[\"'`]([a-z]{8,40})[\"'`]",
        r"api_?key\d?[\"'\])]*\s*[:=>]+\s*[\"'`][a-z]",
        _word_key,
    ),
    _key(
        rf"(?:\b|_){_CIPHER}_?key\d?{_IS}{LITERAL}",
        rf"{_CIPHER}_?key\d?[\"'\])]*(?: ?: ?(?:str|string|&str)\b)?\s*[:=!,>]+\s*{BEGINS}",
        _cipher_key,
    ),
    _key(
        r"\b(?:\w{0,24}(?:secret|passw(?:or)?d|pass(?:phrase)?|pwd|psw|pswd|(?:api|aes|hmac|jwt|signing|secret|private"
        r"|encryption|cipher)_?key)"
        r"\d?)\s?(?::=|=)\s?(?:new )?(?:[\w.]{0,40}(?:encode|decode|bytes|byte|from|b64decode|encodetostring|string"
        r"|secretstr|wrap)"
        rf"|\[\]byte)\(\s?{LITERAL}",
        rf"(?:secret|pass\w*|pwd|psw|key)\d?\s?:?=\s?(?:new )?[\w.\[\]]+\(\s?{BEGINS}",
        _wrapped,
    ),
    _key(
        rf"{_CREDENTIAL}\s?(?::=|={{1,3}}|!=|:)\s?{LITERAL}",
        rf"{_CREDENTIAL}\s?[:=!]+\s?{BEGINS}{_TO_A_DIGIT}",
        _made_literal,
    ),
    _key(rf"\b(?:sign|verify)\(\s?{ARGUMENT}{NEXT}{LITERAL}", rf"\b(?:sign|verify)\([^\n]*,\s?{BEGINS}", _imported),
    _key(
        rf"\bsignjwt\([^;]{{0,300}}?\.sign\(\s?(?:new textencoder\(\)\.encode\(\s?)?{LITERAL}",
        r"\bsignjwt\(",
        accept_argument_of_call,
    ),
    _key(
        rf"\bpdo\s?\(\s?[\"'][^\"'\n]{{1,240}}[\"']{NEXT}{ARGUMENT}{NEXT}{LITERAL}",
        r"\bpdo\s?\(",
        accept_argument_of_call,
    ),
    # Signs one by one.
    _key(
        r"(?:pass(?:word|wd|phrase)?|pwd|psw|secret|key|pin)s?\d?\s?(?:\[\w{0,8}\])?\s?=\s?(?:new char\[\]\s?)?[{\[]\s?"
        rf"({_CHARACTERS}(?:\s?,\s?{_CHARACTERS}){{3,63}})\s?[}}\]]",
        r"[{\[]\s?L?['\"][^'\"\\]['\"]\s?,",
        _characters,
    ),
    _key(
        r"(?:^|[\s\"'{])(?:proxy-)?authorization[\"']?\s?[:=,]\s?[\"']?(?:[a-z][a-z_-]{0,20} +)?"
        r"([0-9a-z._~+/-][0-9a-z._~+/:-]{11,400}=*)",
        r"authorization[\"']?\s?[:=,]\s?[\"']?(?:[a-z_-]+ +)?[a-z._~+/:-]*[0-9]",
        _header,
    ),
    # The registry's tokens of before 2021.
    _key(
        r"\bnpm(?:[_-]?(?:auth)?[_-]?token)?[\"']?(?:\s?[:=]\s?|>)[\"']?([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})\b",
        r"\bnpm[_a-z-]*[\"']?(?:\s?[:=]\s?|>)[\"']?[0-9a-f]",
        _uuid,
    ),
)

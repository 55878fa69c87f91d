"""Passwords in places that leave no doubt: directives, defaults, statements, flags.

Knows the forms of C, build files, shells, Terraform, SQL, XML and notes in which a value belongs to the name of a
password though no sign of equality stands between them. What stands for a value passes, as in `chosen_passwords`.
"""

from __future__ import annotations

from itertools import pairwise

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern, Check
from apps.guardrails.regex.re2_patterns import compile_re2
from apps.guardrails.secret_formats.assignments import NAMES_OF_PASSWORDS, is_hash
from apps.guardrails.secret_formats.chosen_passwords import (
    accept_given,
    accept_mixed,
    is_other_name,
    is_stand_in,
)
from apps.guardrails.secret_formats.entropy import (
    count_character_classes,
    count_turns,
    entropy,
    has_letters_and_digits,
    is_made_of_letters,
    is_random,
    reads_like_words,
)
from apps.guardrails.secret_formats.login_pairs import accept_argument
from apps.guardrails.secret_formats.passwords_by_form import accept_fallback

_LABEL = "PASSWORD"
# Also as people shorten and misspell it.
_NAMES_ALONE = rf"(?:{NAMES_OF_PASSWORDS})"
_NAMES = rf"(?:{NAMES_OF_PASSWORDS}|pa?ss?wo?r?d|secret|credentials?)"
_TOKENS = r"(?:secret|token|api[_-]?key|access[_-]?key|auth[_-]?key|private[_-]?key|credentials?)"
_QUOTED = r"\\{0,3}[\"'`]([^\s\"'`<>\\]{5,100})\\{0,3}[\"'`]"
_LEAST_STRONG = 12
_TURNS, _DIFFERENT = 3, 6
_LETTERS_IN_A_ROW = compile_re2(r"[A-Za-z]{4}")
_KEY_BEFORE = compile_re2(r"(?i)key|azure|storage|cosmos|secret")


def _strong(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a whole quoted line of any signs, which no sentence and no template is."""
    text = candidate.text
    if is_other_name(candidate.before(48)) or is_hash(text) or text[:1] in "[<$^" or "{{" in text:
        return None
    if len(text) < _LEAST_STRONG or count_character_classes(text) < 3 or entropy(text) < 3.5:
        return None
    return candidate if any(not one.isalnum() and one not in "-_." for one in text) else None


def _short_token(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a quoted value of ten to nineteen characters that is put together from no words."""
    text = candidate.text
    if text.isalpha():
        return candidate if is_made_of_letters(text, _LEAST_STRONG) and not is_stand_in(text) else None
    if not text.isalnum() or is_stand_in(text) or not is_random(text, 2.8) or reads_like_words(text):
        return None
    digits = sum(map(str.isdigit, text))
    return (
        candidate if has_letters_and_digits(text) and (digits >= 2 or not (text.islower() or text.isupper())) else None
    )


def _alternating(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a token of a few characters where letters and digits take turns as in no word, version and number."""
    text = candidate.text
    if count_turns(text) < _TURNS or len(set(text)) < _DIFFERENT or is_stand_in(text) or _LETTERS_IN_A_ROW.search(text):
        return None
    return candidate


def _letters(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept letters alone where both cases change as in no name: a key without a digit."""
    text = candidate.text
    changes = sum(one.islower() and two.isupper() for one, two in pairwise(text))
    runs = sum(one.isupper() and two.isupper() for one, two in pairwise(text))
    mixed = changes >= 3 and runs >= 1
    return candidate if mixed and is_random(text, 3.5) and not reads_like_words(text) else None


def _hex(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a digest's form beside the name of a key, where it is no part of a file's name."""
    after = candidate.after(2)
    named = after[:1] == b"." and after[1:].isalpha()
    return None if named or not is_random(candidate.text, 2.8) else candidate


def _encoded(candidate: CandidateMatch) -> CandidateMatch | None:
    text = candidate.text
    return candidate if has_letters_and_digits(text) and is_random(text, 3.0) else None


def _made(candidate: CandidateMatch) -> CandidateMatch | None:
    text = candidate.text
    mixed = has_letters_and_digits(text) and is_random(text, 3.0) and not reads_like_words(text)
    return candidate if mixed or is_made_of_letters(text) else None


def _in_query(candidate: CandidateMatch) -> CandidateMatch | None:
    return None if reads_like_words(candidate.text) else _encoded(candidate)


def _beside_key(candidate: CandidateMatch) -> CandidateMatch | None:
    return candidate if _KEY_BEFORE.search(candidate.before(96)) and is_random(candidate.text, 4.5) else None


def _password(pattern: str, check: Check, *, gate: str = "", overlapping: bool = False) -> CandidatePattern:
    return CandidatePattern("chosen_password", _LABEL, f"(?i){pattern}", check, gate, overlapping)


def _key(pattern: str, check: Check, *, gate: str = "") -> CandidatePattern:
    return CandidatePattern("named_key", "SECRET", f"(?i){pattern}", check, gate)


_BLANK = r"(?:[ \t]|\\t){1,4}"
_NAMED = rf"[a-z0-9_.-]{{0,40}}(?:{_NAMES}|{_TOKENS}|_pass)[a-z0-9_]{{0,12}}"
_LINE = rf"(?m)^[ \t-]*[\w.-]{{0,40}}{_NAMES}[\w-]{{0,12}}[\"']?\s{{0,2}}[:=]\s{{0,2}}"
_LINE_END = r"[,;]?[ \t\r]*$"
# What texts must hold to be searched for these: without the lengths that an automaton would have to count.
_LINE_GATE = rf"(?i){_NAMES}[\w-]*[\"']?\s?\s?[:=]\s?\s?[bru]?[\"']"
_TOKEN_GATE = rf"(?i)(?:{_TOKENS}|[_-]key)[\"'\])]*\s?\s?(?:[:=-]|:=|=>)\s?\s?(?:\[\s?)?[\"']"

PATTERNS = (
    # `#define PASSWORD "…"`, `SET password "…"`, `%global password "…"`.
    _password(
        rf"(?:define|global|set|env|arg){_BLANK}[a-z0-9_]{{0,40}}{_NAMES}[a-z0-9_]{{0,12}}{_BLANK}{_QUOTED}",
        accept_mixed,
    ),
    _password(rf"{_NAMES}\d?[ \t]{{1,3}}{_QUOTED}[;,\s)]", accept_mixed, overlapping=True),
    # What a program takes when its environment says nothing.
    _password(
        rf"(?:getenv|environ(?:\.get)?|env|config|get)[(\[]{{1,2}}[\"']{_NAMED}[\"'][)\]]{{0,2}}"
        rf"\s{{0,3}}(?:,|\bor\b|\|\||\?\?|\?:)\s{{0,3}}(?:default\s?=\s?)?{_QUOTED}",
        accept_fallback,
    ),
    _password(
        rf"\benv\.[a-z0-9_]{{0,40}}(?:{_NAMES}|{_TOKENS})[a-z0-9_]{{0,8}}\s{{0,3}}(?:\|\||\?\?)\s{{0,3}}{_QUOTED}",
        accept_fallback,
        gate=r"(?i)\benv\.[a-z0-9_]+\s*(?:\|\||\?\?)\s*[\"'`]",
    ),
    _password(
        rf"(?:{_NAMES}|{_TOKENS})\w{{0,12}}\s{{0,3}}:?=\s{{0,3}}(?:os\.)?(?:getenv|env|environ\.get)"
        rf"\([\"'][^\"'\n]{{1,40}}[\"'],\s{{0,3}}{_QUOTED}",
        accept_fallback,
    ),
    # What an empty variable of a shell, a compose file or Spring's settings stands for: `${DB_PASSWORD:-…}`.
    _password(
        rf"\$\{{(?:env[:.])?[a-z0-9_.]{{0,40}}(?:{_NAMES}|{_TOKENS}|_key|_pass)[a-z0-9_]{{0,12}}"
        rf"(?::[-=]?|-|,\s?['\"])\s?"
        r"([^\s\"'{}$<>]{5,200})['\"]?\}",
        accept_mixed,
        gate=r"(?i)\$\{[a-z0-9_.:]+(?::[-=]?|-|,\s?['\"])",
    ),
    # Terraform.
    _password(
        rf"\bvariable\s+\"[^\"\n]{{0,40}}(?:{_NAMES}|{_TOKENS}|[_-]key)[^\"\n]{{0,20}}\"\s*\{{[^{{}}]{{0,160}}?"
        r"\bdefault\s*=\s*\"([^\"\s]{6,200})\"",
        accept_mixed,
        gate=r"(?i)\bvariable\s+\"",
    ),
    # Misspelt and shortened names, which nothing else is.
    _password(
        r"(?:pa?ss?wo?r?d|passwo[a-z]{1,3}d)\d?[\"']?\s{0,2}(?::=|[:=!]=?)\s{0,2}"
        r"[\"'`]?([^\s\"'`<>;,=$%{][^\s\"'`<>;,]{5,99})",
        accept_mixed,
        gate=r"(?i)(?:pa?ss?wo?r?d|passwo[a-z]+d)\d?[\"']?\s*[:=!]",
        overlapping=True,
    ),
    _password(
        r"(?-i:\b[A-Z0-9_]{2,24}PASS)\d? ?[:=] ?[\"'`]?([^\s\"'`<>;,=$%{][^\s\"'`<>;,]{5,99})",
        accept_mixed,
        gate=r"PASS\d? ?[:=]",
    ),
    _password(
        r"(?-i:(?m)^[ \t]*#?[ \t]*(?:export )?[A-Z][A-Z0-9_]{3,40}_PASS(?:WORD)?) ?= ?"
        r"[\"']?([^\s\"'`<>$]{6,100})[\"']?[ \t]*(?m:(?:#[^\n]*)?$)",
        accept_given,
        gate=r"_PASS(?:WORD)? ?=",
    ),
    # A quoted line of any signs, blanks excepted.
    _password(rf"{_LINE}[bru]?\"([^\s]{{12,160}})\"{_LINE_END}", _strong, gate=_LINE_GATE),
    _password(rf"{_LINE}[bru]?'([^\s]{{12,160}})'{_LINE_END}", _strong, gate=_LINE_GATE),
    _password(rf"{_NAMES_ALONE}\s?,\s?\"([^\s\"]{{12,100}})\"", _strong),
    # Flags and statements.
    _password(
        r"\bpsexec(?:64)?(?:\.exe)?\b[^\n]{1,100}? -p ([^\s\"'$%<]{4,60})", accept_argument, gate=r"(?i)\bpsexec"
    ),
    _password(
        r"\b(?:create|alter)\s+(?:user|role|login)\b[^\n;]{1,100}?\bpassword\s*=?\s*([0-9A-Za-z][^\s\"';]{5,100})",
        accept_mixed,
        gate=r"(?i)\b(?:create|alter)\s+(?:user|role|login)\b[^\n;]+\bpassword",
    ),
    # What a function of that name returns, and keys in addresses.
    _key(
        rf"(?:{_TOKENS}|key|passw(?:or)?d)\w{{0,12}}\s?\([^()\n]{{0,40}}\)[^\"'`\n{{}}]{{0,24}}[{{:]?\s{{0,24}}return\s{{1,3}}{_QUOTED}",
        accept_mixed,
        gate=r"\breturn\s+[\"'`]",
    ),
    _key(
        r"[?&](?:code|sig|key|subscription-key)=([0-9a-z%/+_-]{32,100}={0,2})",
        _in_query,
        gate=r"(?i)[?&](?:code|sig|key|subscription-key)=[0-9a-z%/+_-]",
    ),
    # Short tokens and tokens without a digit, beside their name.
    _key(
        rf"(?:{_TOKENS}|\b[a-z]{{3,12}}[_-]key)[\"'\])]{{0,3}}\s{{0,2}}(?:[:=-]|:=|=>)\s{{0,2}}[\"']([0-9a-z]{{10,19}})[\"']",
        _short_token,
        gate=_TOKEN_GATE,
    ),
    _key(
        rf"(?:{_TOKENS}|_key)[\"'\])]{{0,3}}\s{{0,2}}(?:[:=]|:=|=>)\s{{0,2}}(?:\[\s?)?[\"']([0-9a-z]{{7,15}})[\"']",
        _alternating,
        gate=_TOKEN_GATE,
    ),
    # What nothing but its name and its quotes say: `$oauth = "…"`.
    _key(
        r"(?:\b|[_$])o?auth[\"'\])]{0,3}\s{0,2}(?:={1,3}|:=|=>|:|,)\s{0,2}[\"']([0-9a-z]{16,64})[\"']",
        _made,
        gate=r"(?i)o?auth[\"'\])]*\s*[:=,][:=>]*\s*[\"'][0-9a-z]",
    ),
    # Headers, and settings to the end of their line.
    _key(
        r"(?m)(?:\bx-[a-z0-9-]{0,24}(?:key|token|secret|auth)|(?:_|\b)(?:token|api_?key|secret)) ?[:=] ?"
        r"([0-9a-z]{8,15})[ \t\r]*[\"']?[ \t\r]*$",
        _alternating,
        gate=r"(?i)(?:key|token|secret|auth) ?[:=] ?[0-9a-z]",
    ),
    _key(
        rf"(?:{_TOKENS}|key|passw(?:or)?d)[\"'\])]{{0,3}}\s{{0,2}}(?:[:=]|:=|=>|,)\s{{0,2}}[\"']?(?:bearer )?"
        r"([a-z]{20,100})\b",
        _letters,
    ),
    # "`…` is the token".
    _key(
        r"[\"'`]([0-9a-z_.+/=-]{16,200})[\"'`] is (?:the|my|our|your) (?:\w{1,16} ){0,2}(?:token|key|secret|password)",
        _encoded,
        gate=r"(?i)[\"'`] is (?:the|my|our|your) ",
    ),
    # Behind a hyphen or a point, in an address inside an address, and HashiCorp's pair of role and secret.
    _key(r"(?:api_?key|token|secret(?:_key)?|access|private)[-.]([0-9a-f]{32,64})\b", _hex),
    _key(rf"(?:{_TOKENS}|[_-]key|passw(?:or)?d)%3D([0-9a-z_.~-]{{12,200}})", _encoded),
    _key(r"(?:\b|_)secret[_-]?id[\"']?\s?[:=]\s?[\"']?([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})\b", _hex),
    # 64 bytes in base64 beside the word, as Azure's stores and queues give them out.
    CandidatePattern("named_key", "SECRET", r"[\s\"'=>]([0-9A-Za-z+/]{86}==)", _beside_key, gate=r"==(?:[\"'\s<;]|$)"),
)

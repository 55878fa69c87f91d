"""Logins: what programs take as flags, headers carry, and files of passwords hold.

The flags of programs, basic authentication (RFC 7617), and how .netrc, .pgpass, FileZilla, `docker login` and
the password files of servers are written.
"""

from __future__ import annotations

import base64
import binascii
from functools import partial

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern
from apps.guardrails.matching.text_checks import text_check
from apps.guardrails.regex.re2_patterns import compile_re2
from apps.guardrails.secret_formats.assignments import is_code_or_common
from apps.guardrails.secret_formats.entropy import (
    count_character_classes,
    has_letters_and_digits,
    is_generated,
    is_placeholder,
    is_random,
)
from apps.guardrails.secret_formats.passwords import is_word_for_password

_LEAST, _LEAST_ALONE, _MAX_LENGTH = 3, 16, 16_384
_BASE64 = compile_re2(r"[0-9A-Za-z+/]*={0,2}")


def _basic(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what decodes to `user:password`; a password may be a whole file of JSON, as registries take it."""
    run = _BASE64.match(candidate.utf8, candidate.start, candidate.start + _MAX_LENGTH)
    try:
        user, colon, password = base64.b64decode(run.group(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    printable = "".join((user + password).split()).isprintable()
    if not colon and printable and len(user) >= _LEAST_ALONE and has_letters_and_digits(user):
        return CandidateMatch(candidate.utf8, candidate.start, run.end())
    if not colon or not printable or len(password) < _LEAST or is_word_for_password(password):
        return None
    return CandidateMatch(candidate.utf8, candidate.start, run.end())


def _is_login(text: str) -> bool:
    if is_placeholder(text) or is_code_or_common(text) or text[0] == "$":
        return False
    return count_character_classes(text) >= 3 or (has_letters_and_digits(text) and is_random(text, 3.0))


_made, _login = text_check(is_generated), text_check(_is_login)
_login_kind = partial(CandidatePattern, "login", "PASSWORD")
PATTERNS = (
    CandidatePattern(
        "basic_auth",
        "SECRET",
        r"(?i)authorization[\"'\])]{0,3}\s?[:=,]{1,2}\s?[\[(\"']{0,3}basic +([A-Z0-9+/]{8})",
        _basic,
        wide_context=True,
    ),
    # The file of `docker login`.
    CandidatePattern(
        "basic_auth", "SECRET", r"\\{0,6}\"auth\\{0,6}\" ?: ?\\{0,6}\"([0-9A-Za-z+/]{8})", _basic, wide_context=True
    ),
    # The same without a user, as tokens in base64 for addresses.
    CandidatePattern(
        "basic_auth", "SECRET", r"\\{0,6}\"auth\\{0,6}\" ?: ?\\{0,6}\"([0-9A-Za-z_-]{40,})\\{0,6}\"", _made
    ),
    _login_kind(r"(?:^|\s)(?:-u[ =]?|--user[ =])[\"']?[A-Za-z0-9_.@-]{1,60}:([^\s\"'@]{6,})", _login),
    # Files of .netrc and FileZilla, and password files of servers and databases.
    _login_kind(r"\blogin\s+[^\s]{1,64}\s+password\s+([^\s]{6,})", _login),
    _login_kind(r"(?i)<pass(?:word)?\b[^<>]{0,60}>([^<>\s]{6,})</pass", _login),
    _login_kind(r"(?m)^[\w.*-]{1,}:(?:\d{2,5}|\*):[^:\s]{1,64}:[^:\s]{1,64}:([^:\s]{6,})$", _login),
    # Files of users with hashes of their passwords, which can be cracked. A hash without its user opens nothing.
    CandidatePattern(
        "password_hash",
        "PASSWORD",
        r"(?m)^[a-z_][\w.-]{0,31}:(\$(?:1|2[abxy]|5|6|y|apr1)\$[^:\s]{20,})(?::|$)",
        lambda candidate: candidate,
    ),
    # A key instead of the user, without a password, and a signed-in session.
    CandidatePattern(
        "login",
        "SECRET",
        r"(?i)\bcurl\b[^\n]{0,100}? (?:-u|--user)[ =]?[\"']?([0-9A-Z_-]{16,})(?::|[\"' \n]|$)",
        _made,
        gate=r"(?i)\bcurl\b[^\n]* (?:-u|--user)[ =]?[\"']?[0-9A-Z_-]",
    ),
    CandidatePattern(
        "session_cookie",
        "SECRET",
        r"(?i)\bcookie[\"']? ?: ?[\"']?[^\n]{0,100}?\b[a-z_.-]{0,12}(?:session|sess|sid|auth|token)[a-z_-]{0,8}="
        r"([0-9A-Z%._~+/-]{20,})",
        _made,
    ),
    # The programs that take a password behind a letter.
    _login_kind(
        r"\b(?:(?:mysql(?:dump|admin|import)?|mariadb(?:-dump)?|mongo(?:sh|dump|restore)?"
        r"|docker login|az login|npm login)"
        r"\b[^\n|;&]{0,60}? -p[ =]?"
        r"|redis-cli\b[^\n|;&]{0,60}? -a |(?:ldap(?:search|add|modify|passwd)|ipmitool)\b[^\n|;&]{0,60}? -[wP] "
        r"|(?:sqlcmd|bcp|zip|unzip)\b[^\n|;&]{0,60}? -P ?|smbclient\b[^\n|;&]{0,60}? -U ?[\"']?[^\s%]{1,60}%"
        r"|keytool\b[^\n|;&]{0,100}? -(?:store|key)pass |\bpass(?:in|out) pass:|net user [^\s]{1,60} )"
        r"[\"']?([^\s\"']{6,})",
        _login,
    ),
    _login_kind(r"(?i)\bConvertTo-SecureString (?:-String )?[\"']([^\s\"']{6,})[\"']", _login),
    CandidatePattern(
        "password",
        "PASSWORD",
        r"(?i)\b(?:identified(?: with [\w'\"]{1,40})? (?:by|as)(?: password)?|password(?: =)?(?: password\()?) ?"
        r"'([^\s']{6,})'",
        _login,
    ),
    _login_kind(r"(?i)(?:\bauth ?= ?\(|\.login\() ?[\"'][^\"'\n]{1,64}[\"'], ?[\"']([^\"'\s]{6,})[\"']", _login),
)

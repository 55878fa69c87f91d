"""Logins: what programs take as flags, headers carry, and files of passwords hold.

Knows the flags of programs, basic authentication (RFC 7617), and how .netrc, .pgpass, FileZilla, `docker login` and
the password files of servers are written. Must never know what is done about a finding.
"""

from __future__ import annotations

import base64
import binascii

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern
from apps.guardrails.secret_formats.assignments import is_code_or_common
from apps.guardrails.secret_formats.entropy import (
    count_character_classes,
    has_letters_and_digits,
    is_placeholder,
    is_random,
)


def _basic(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what decodes to `user:password`."""
    try:
        user, colon, password = base64.b64decode(candidate.text, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    printable = (user + password).isprintable()
    return candidate if colon and printable and len(password) >= 6 and not is_placeholder(password) else None


def _login(candidate: CandidateMatch) -> CandidateMatch | None:
    text = candidate.text
    if is_placeholder(text) or is_code_or_common(text) or text[0] == "$":
        return None
    return (
        candidate
        if count_character_classes(text) >= 3 or (has_letters_and_digits(text) and is_random(text, 3.0))
        else None
    )


PATTERNS = (
    CandidatePattern(
        "basic_auth", "SECRET", r"(?i)authorization[\"']? ?[:=] ?[\"']?basic +([A-Z0-9+/]{8,400}={0,2})", _basic
    ),
    # What `docker login` keeps.
    CandidatePattern(
        "basic_auth", "SECRET", r"\\{0,6}\"auth\\{0,6}\" ?: ?\\{0,6}\"([0-9A-Za-z+/]{12,400}={0,2})\\{0,6}\"", _basic
    ),
    CandidatePattern(
        "login", "PASSWORD", r"(?:^|\s)(?:-u|--user)[ =]?[\"']?[A-Za-z0-9_.@-]{1,60}:([^\s\"'@]{6,100})", _login
    ),
    # What .netrc, FileZilla and the password files of servers and databases hold.
    CandidatePattern("login", "PASSWORD", r"\blogin\s+[^\s]{1,64}\s+password\s+([^\s]{6,100})", _login),
    CandidatePattern("login", "PASSWORD", r"(?i)<pass(?:word)?\b[^<>]{0,60}>([^<>\s]{6,200})</pass", _login),
    CandidatePattern(
        "login", "PASSWORD", r"(?m)^[\w.*-]{1,100}:(?:\d{2,5}|\*):[^:\s]{1,64}:[^:\s]{1,64}:([^:\s]{6,100})$", _login
    ),
    CandidatePattern(
        "password_hash",
        "PASSWORD",
        r"(?m)^[a-z_][\w.-]{0,31}:(\$(?:1|2[abxy]|5|6|y|apr1)\$[^:\s]{20,120})(?::|$)",
        lambda candidate: candidate,
    ),
    CandidatePattern("login", "PASSWORD", r"\bsshpass +-p ?[\"']?([^\s\"']{6,100})", _login),
    # The programs that take a password behind a letter.
    CandidatePattern(
        "login",
        "PASSWORD",
        r"\b(?:(?:mysql(?:dump|admin|import)?|mariadb(?:-dump)?|mongo(?:sh|dump|restore)?|docker login|az login)"
        r"\b[^\n|;&]{0,120}? -p[ =]?"
        r"|redis-cli\b[^\n|;&]{0,120}? -a |(?:ldap(?:search|add|modify|passwd)|ipmitool)\b[^\n|;&]{0,120}? -[wP] "
        r"|(?:sqlcmd|bcp|zip|unzip)\b[^\n|;&]{0,120}? -P ?|smbclient\b[^\n|;&]{0,120}? -U ?[\"']?[^\s%]{1,60}%"
        r"|keytool\b[^\n|;&]{0,200}? -(?:store|key)pass |\bpass(?:in|out) pass:|net user [^\s]{1,60} )"
        r"[\"']?([^\s\"']{6,100})",
        _login,
    ),
    CandidatePattern(
        "login", "PASSWORD", r"(?i)\bConvertTo-SecureString (?:-String )?[\"']([^\s\"']{6,100})[\"']", _login
    ),
    CandidatePattern(
        "password",
        "PASSWORD",
        r"(?i)\b(?:identified(?: with [\w'\"]{1,40})? (?:by|as)(?: password)?|password(?: =)?(?: password\()?) ?"
        r"'([^\s']{6,100})'",
        _login,
    ),
    CandidatePattern(
        "login",
        "PASSWORD",
        r"(?i)(?:\bauth ?= ?\(|\.login\() ?[\"'][^\"'\n]{1,64}[\"'], ?[\"']([^\"'\s]{6,100})[\"']",
        _login,
    ),
)

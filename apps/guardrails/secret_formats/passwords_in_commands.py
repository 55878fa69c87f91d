"""Passwords behind the flags and in the variables of databases' programs, and phrases where only a secret can stand.

Knows how `mysql`, `mongosh` and their kin take a password, quoted or as a whole argument, the variables of their
containers, what frameworks sign with, and drivers' strings with braces. There a value may be a word, several words, or
words that signs join. What stands for one passes, as in `chosen_passwords`.
"""

from __future__ import annotations

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern, Check
from apps.guardrails.regex.re2_patterns import compile_re2
from apps.guardrails.secret_formats.chosen_passwords import accept_mixed, is_no_password, is_no_value
from apps.guardrails.secret_formats.entropy import entropy
from apps.guardrails.secret_formats.stand_in_words import has_word_of_its_own

_LEAST, _LEAST_BITS, _LEAST_PHRASE = 3, 1.5, 8
# A quoted value may have blanks in it; a value without quotes ends at one.
_QUOTED = r"\\{0,3}[\"']([^\r\n\"'\\]{3,80})\\{0,3}[\"']"
_BARE = r"([^\s\"'`\\$%<{(\[|;&][^\s\"'`\\|;&\[\](){}]{2,80})"
_MYSQL = r"\b(?:mysql(?:admin|dump|import|show|check|sh)?|mariadb(?:-(?:admin|dump|import))?)[\"']?,?[ \t]"
_MONGO = r"\bmongo(?:sh|dump|import|export|restore|stat|top|files)?[\"']?,?[ \t]"
_ARGUMENTS = r"[^\n|;&]{0,160}?"
_DATABASE = (
    r"(?:MYSQL|MARIADB|POSTGRES(?:QL)?|PG|MONGO(?:DB)?|REDIS|RABBITMQ|MSSQL|SA|ORACLE|NEO4J|ELASTIC|CLICKHOUSE|INFLUXDB"
    r"|KEYCLOAK|GRAFANA|MINIO|DB|DATABASE|JDBC|SMTP|MAIL|EMAIL|LDAP|FTP|SSH|ADMIN|ROOT)"
)
_ENVIRONMENT = rf"\b{_DATABASE}_?(?:[A-Z]{{2,12}}_){{0,3}}(?:PASSWORD|PASSWD|PASS|PWD)"
# What is left of a longer flag, and what a sentence says of passwords.
_OF_FLAG = compile_re2(r"(?i)^(?:ort\b|assw|rotocol\b|refix\b|lugin)")
_SENTENCE = compile_re2(
    r"(?i)\b(?:enter|your|the|please|is|are|for|must|should|not|to|of|with|and|or|new|old|this|that|an?|invalid|wrong|"
    r"missing|required|failed|error|unable|cannot|no|has|have|been|was|will|put|here|set|see|in|on|by|from|at)\b|[:?.…]$"
)
_METHOD_OR_TYPE = compile_re2(
    r"^[A-Z][a-z]+(?:[A-Z][a-z]+)+$|^[a-z]+(?:\.[a-z_]+)+$|^[a-z]+_[a-z_]*(?:pass|key|secret)\w*$"
)


def accept_in_place(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept any value, also one of several words, that neither stands for a secret nor is a sentence."""
    text = candidate.text.strip()
    if len(text) < _LEAST or text != candidate.text or is_no_value(text) or entropy(text) < _LEAST_BITS:
        return None
    if is_no_password(text) and not has_word_of_its_own(text):
        return None
    if " " in text:
        return candidate if len(text) >= _LEAST_PHRASE and not _SENTENCE.search(text) else None
    return None if _METHOD_OR_TYPE.search(text) else candidate


def _behind_flag(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what stands behind `-p`, unless this only begins a longer flag."""
    return None if _OF_FLAG.search(candidate.text) else accept_in_place(candidate)


def _phrase(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept several words that a program gives to a password, and no label of one."""
    text = candidate.text
    return accept_in_place(candidate) if " " in text and not text[0].isupper() else None


def _line(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a key of a framework to the end of its line."""
    text = candidate.text
    return candidate if len(set(text)) >= 8 and not is_no_password(text) else None


def _password(pattern: str, gate: str, check: Check = accept_in_place) -> CandidatePattern:
    return CandidatePattern("password_in_command", "PASSWORD", pattern, check, gate)


def _key(pattern: str, gate: str, check: Check = accept_in_place) -> CandidatePattern:
    return CandidatePattern("signing_key", "SECRET", pattern, check, gate)


_TAKES_P = r"\b(?:mysql|mariadb|mongo)"
_SIGNS = (
    r"\b(?:SECRET_KEY(?:_BASE|_FALLBACKS)?|CRYPTOGRAPHY_KEY|(?:SECURE_)?AUTH_KEY|LOGGED_IN_KEY|NONCE_KEY|(?:SECURE_)?"
    r"AUTH_SALT|LOGGED_IN_SALT|NONCE_SALT|JWT_SECRET(?:_KEY)?|SESSION_SECRET|COOKIE_SECRET)"
)

PATTERNS = (
    _password(rf"{_MYSQL}{_ARGUMENTS}(?:[ \t\"',]-p|--password[= ]){_QUOTED}", _TAKES_P, _behind_flag),
    _password(
        rf"{_MYSQL}{_ARGUMENTS}[\"'](?:-p|--password=)([^\s\"'\\$][^\r\n\"'\\]{{2,80}})[\"']", _TAKES_P, _behind_flag
    ),
    _password(rf"{_MONGO}{_ARGUMENTS} (?:-p|--password)[ =](?:{_QUOTED})", _TAKES_P, _behind_flag),
    _password(rf"{_MONGO}{_ARGUMENTS} (?:-p|--password)[ =]{_BARE}", _TAKES_P, _behind_flag),
    _password(rf"{_ENVIRONMENT} ?[=:] ?(?:{_QUOTED})", r"(?:PASSWORD|PASSWD|PASS|PWD) ?[=:] ?\\*[\"']"),
    _password(
        rf"{_ENVIRONMENT}(?:=| ?: ){_BARE}(?:[\s\"']|$)",
        rf"{_DATABASE}_?(?:[A-Z]+_)*(?:PASSWORD|PASSWD|PASS|PWD)(?:=| ?: )[^\s\"'$]",
    ),
    _password(
        rf"(?i){_ENVIRONMENT}[\"']?,?\s{{1,24}}[\"']?value[\"']?\s?[:=]\s?{_QUOTED}",
        r"(?i)(?:password|passwd|pass|pwd)[\"']?,?\s+[\"']?value[\"']?\s?[:=]\s?[\"']",
    ),
    _password(
        r"(?i)\bconvertto-securestring\s+(?:-string\s+)?\\{0,3}[\"']([^\"'\n$\\]{3,80})\\{0,3}[\"']",
        r"(?i)\bconvertto-securestring",
    ),
    # Strings for connections that put a value in braces.
    _password(
        r"(?i)\b(?:password|pwd)\s?=\s?\{([^{}\s\"']{4,80})\}\s?(?:;|[\"']|$)",
        r"(?i)\b(?:password|pwd)\s?=\s?\{",
        accept_mixed,
    ),
    # Several words that a program gives to a password.
    _password(
        r"(?i)(?:\b|_)(?:password|passwd|pwd|passphrase)\d?\s?:?=\s?[bru]?[\"']([^\s\"'\\<>{}$%][^\"'\\<>{}$%\n]{7,80})[\"']\s?(?:[;,)]|$)",
        r"(?i)(?:password|passwd|pwd|passphrase)\d?\s?:?=\s?[bru]?[\"'][^\s\"']+ ",
        _phrase,
    ),
    # Sessions, tokens and services that sign users in, as their libraries' settings say; a phrase for a private key.
    _key(
        r"(?i)\b(?:(?:client|consumer)_?secret|secretor(?:private)?key|passphrase)[\"']?\s?:\s?[\"'`]([^\"'`\n]{6,80})[\"'`]",
        r"(?i)\b(?:(?:client|consumer)_?secret|secretor(?:private)?key|passphrase)[\"']?\s?:\s?[\"'`]",
    ),
    _key(
        r"(?i)\bsecret[\"']?\s?:\s?[\"'`]([^\"'`\n]{6,80})[\"'`]\s?,?\s{0,20}(?:resave|saveuninitialized|cookie|store"
        r"|algorithms|credentialsrequired|userproperty|rolling|genid)\b",
        r"(?i)\bsecret[\"']?\s?:\s?[\"'`][^\"'`\n]+[\"'`]\s?,?\s*(?:resave|saveuninit|cookie|store|algorithms|creden|userp|roll|genid)",
    ),
    _key(
        r"(?i)\b(?:session|cookiesession|expressjwt|jwt|\w{0,20}strategy)\s?\(\s{0,8}\{[^{}]{0,240}?\bsecret[\"']?\s?:\s?"
        r"[\"'`]([^\"'`\n]{6,80})[\"'`]",
        r"(?i)(?:session|jwt|strategy)\s?\(\s*\{",
    ),
    # What frameworks sign with: a word, several words, a whole line.
    _key(
        rf"{_SIGNS}[\"'\])]{{0,3}}\s?(?:=|:|,|=>)\s?(?:[\[(]\s?)?[rbf]?[\"']([^\"'\n]{{4,120}})[\"']",
        rf"{_SIGNS}[\"'\])]*\s?(?:=|:|,|=>)\s?[\[(\s]*[rbf]?[\"']",
    ),
    _key(
        rf"{_SIGNS}[\"'\])]{{0,3}}\s?[=:]\s?(?:[\w.]{{1,24}}\.)?(?:getenv|env|get|config)(?:\.\w{{1,8}})?"
        r"\(\s?[\"'][^\"'\n]{1,40}[\"']"
        r",\s?(?:default\s?=\s?)?[\"']([^\"'\n]{4,120})[\"']",
        rf"{_SIGNS}[\"'\])]*\s?[=:]\s?[\w.]*(?:getenv|env|get|config)",
    ),
    _key(
        r"(?m)^[ \t]*(?:export )?(?:DJANGO_|FLASK_|APP_)?SECRET_KEY[ \t]*=[ \t]*([^\s\"'$<{(\[#][^\s\"']{7,120})"
        r"[ \t\r]*$",
        r"SECRET_KEY[ \t]*=[ \t]*[^\s\"'$]",
        _line,
    ),
)

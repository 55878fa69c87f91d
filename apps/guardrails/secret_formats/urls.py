"""Passwords inside URLs: databases, brokers, basic authentication.

It reads the user part of an address (RFC 3986). Only the password is the secret.
"""

from __future__ import annotations

from urllib.parse import unquote

from apps.guardrails.matching.pattern_search import CONTEXT_BYTES, CandidateMatch, CandidatePattern
from apps.guardrails.regex.re2_patterns import compile_re2
from apps.guardrails.secret_formats.entropy import (
    WORDS,
    count_character_classes,
    has_letters_and_digits,
    is_placeholder,
)
from apps.guardrails.secret_formats.passwords import is_word_for_password

_ALL_CLASSES, _PORT = 4, compile_re2(r"^\d+/")
# From so many letters on, a word is no example's, on whatever host.
_LEAST_LOCAL = 5
# So short a word says nothing; letters with digits do.
_SHORT = 3
_WEAK = frozenset(WORDS["guessed"].split())
# Words that examples put together: `pass%20pass`, `p%40ssw%24rd`, `password123`.
_SPELLED = frozenset(("pass", "word", "password", "passwd", "passwsrd", "pwd", "secret", "test", "user"))
_WORD, _LETTERS, _MAX_DIGITS = compile_re2(r"[a-z]+"), str.maketrans("@$", "as"), 4

# Forms of an address say this in the password's place: `authKey`, `really_secure_password`.
_NAMED = compile_re2(
    r"^(?:[a-z]+[_-])+(?:key|secret|token|password|passwd|pass)$|^[a-z]+(?:Key|Secret|Token|Password|Pass)$"
)
_LOCAL = compile_re2(r"@(?:localhost|127\.0\.0\.1|\[::1\]|(?:[a-z0-9-]+\.)*example\.(?:com|org|net))(?:[:/\s]|$)")


def _is_spelled_out(password: str) -> bool:
    """Tell whether all words of a password, decoded, only name one."""
    decoded = unquote(password).lower().rstrip("@#!").translate(_LETTERS)
    words = _WORD.findall(decoded)
    long = [word for word in words if len(word) > 1]
    named = bool(long) and (_SPELLED.issuperset(long) or "".join(words) in _SPELLED)
    return named and sum(map(str.isdigit, decoded)) <= _MAX_DIGITS


def _check(candidate: CandidateMatch) -> CandidateMatch | None:
    password = candidate.text
    if (
        password.lower() in _WEAK
        or _is_spelled_out(password)
        or (password.isupper() and "_" in password)
        or is_placeholder(password)
        or _NAMED.search(password)
        or len(set(password)) < (4 if len(password) > _SHORT else _SHORT)
        or (len(password) <= _SHORT and not has_letters_and_digits(password))
    ):
        return None
    # Brackets and backslashes are encoded in addresses: these are an expression, or the form of addresses.
    if password[0] in "<{[$%" or password.endswith(("}", ">", "]")) or "[^" in password or "\\" in password:
        return None
    if (
        password.isalpha()
        and password.islower()
        and (len(password) < _LEAST_LOCAL or is_word_for_password(password))
        and _LOCAL.match(candidate.utf8, candidate.end, candidate.end + CONTEXT_BYTES)
    ):
        return None
    user = candidate.before(80).rpartition(b"://")[2].rstrip(b":").decode("utf-8", "replace")
    return None if user == password or (password.isdigit() and len(password) < 6) else candidate


def _unencoded(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a password with signs of addresses in it: all four kinds of characters, and no address of its own."""
    text = candidate.text
    mixed = count_character_classes(text) >= _ALL_CLASSES and not _PORT.match(text) and "://" not in text
    return _check(candidate) if mixed else None


PATTERNS = (
    # Signs that ought to be encoded: the last `@` before a host ends the password.
    CandidatePattern(
        "address_password",
        "PASSWORD",
        r"(?i)\b[a-z][a-z0-9+.-]{1,24}://[\w.%+-]{1,80}:([^\s\"'`<>,]{4,64})@[a-z0-9][a-z0-9.-]{1,80}(?::\d{2,5})?(?:[/?\s\"'`]|$)",
        _unencoded,
    ),
    CandidatePattern(
        "address_password",
        "PASSWORD",
        r"(?i)\b[a-z][a-z0-9+.-]{1,24}://[^\s:/?#\"'<>]{0,80}:([^\s@/\"'<>]{3,})@[^\s@/\"'<>]{1,}",
        _check,
    ),
)

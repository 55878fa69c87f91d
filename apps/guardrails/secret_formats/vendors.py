"""API keys and tokens in the formats of their issuers.

The formats are a table (`vendors.toml`), from the issuers' documents (GitHub's "authentication token formats", Stripe's
"API keys", GitLab's "token overview", AWS's "unique identifiers" and so on) and public scanners. Here are the checks of
their values. Keys for a vendor's test mode are no secrets.
"""

from __future__ import annotations

import base64
import binascii
import tomllib
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern, Check
from apps.guardrails.matching.text_checks import text_check
from apps.guardrails.regex.re2_patterns import compile_re2
from apps.guardrails.secret_formats.entropy import (
    has_letters_and_digits,
    is_generated,
    is_placeholder,
    is_random,
    reads_like_words,
)

_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_LABEL = "SECRET"
_ENOUGH, _ENOUGH_HEX = 3.2, 2.7
_ENOUGH_OF_ITS_OWN = 4
_DISCORD_LEAST = 34
# From so many characters on, words would be a sentence.
_LONG = 36
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_UUID = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
_TAIL = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_SEPARATORS = compile_re2(r"[_.:/-]")
# Numbers that no word can be part of.
_PLAIN = compile_re2(rf"{_UUID}|[0-9a-f]{{32,}}$")
_TEST_MODE = compile_re2(r"(?:^|[_-])(?:test|sandbox|sdbx|dev|public|publishable)[_-]|^pk_live")
_LEAST, _LEAST_DIGITS, _HEX_DIGEST = 3.0, 2, compile_re2(r"^(?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64})$")
# Average characters of a word in a recovery phrase (BIP-39), with its blank: few of its words are short.
_LEAST_OF_A_WORD, _LEAST_DIFFERENT = 5, 10


def _is_whole(candidate: CandidateMatch) -> bool:
    before, after = candidate.before(1), candidate.after(1)
    return not ((before and before[0] in _TAIL) or (after and after[0] in _TAIL))


def _random_check(least: float = _ENOUGH, prefix: int = 0) -> Check:
    """Return the check of a token that is random from its `prefix`th character on.

    A secret with letters and a sign of its own at its beginning counts, whatever follows it.
    """

    def is_random_and_whole(candidate: CandidateMatch) -> CandidateMatch | None:
        text, before = candidate.text, candidate.before(1)
        begins = prefix >= _ENOUGH_OF_ITS_OWN and text[prefix - 1] in "_-." and not (before and before[0] in _TAIL)
        return candidate if (begins or _is_whole(candidate)) and is_random(text[prefix:], least) else None

    return is_random_and_whole


def _github(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a right checksum (the last six characters) at once, and without one a random text."""
    body = candidate.text[4:]
    if len(body) == 36 and _base62(zlib.crc32(body[:30].encode())) == body[30:]:
        return candidate
    return candidate if _is_whole(candidate) and is_random(body, _ENOUGH) else None


def _base62(number: int) -> str:
    digits = ""
    for _ in range(6):
        number, digit = divmod(number, 62)
        digits = _BASE62[digit] + digits
    return digits


def _discord(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a token whose first part is the number of an account, or whose parts are as random as tokens' are."""
    first, _, rest = candidate.text.partition(".")
    try:
        account = base64.urlsafe_b64decode(first + "=" * (-len(first) % 4))
    except (binascii.Error, ValueError):
        account = b""
    made = len(rest) >= _DISCORD_LEAST and is_random(rest, 4.0) and any(map(str.isdigit, first + rest))
    return candidate if (account.isdigit() or made) and _is_whole(candidate) else None


def _made(least: float, prefix: int) -> Check:
    """Return the check of a token that is no identifier and no file's name: with digits, and not of words."""
    check = _random_check(least, prefix)

    def is_made(candidate: CandidateMatch) -> CandidateMatch | None:
        rest = candidate.text[prefix:]
        if candidate.before(1) == b"." or not any(map(str.isdigit, rest)):
            return None
        return None if len(rest) < _LONG and reads_like_words(rest) else check(candidate)

    return is_made


def _issued(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what stands alone, is random, and is put together from no words."""
    text, before, after = candidate.text, candidate.before(1), candidate.after(2)
    if (
        (before and before[0] in _TAIL)
        or before in (b".", b"/", b"+")
        or after[:1] in (b"/", b"+")
        or (after and after[0] in _TAIL)
    ):
        return None
    if after[:1] == b"." and after[1:].isalpha():
        return None  # the name of a file
    plain = _PLAIN.search(text)
    body = plain.group() if plain else max(_SEPARATORS.split(text), key=len)
    if sum(map(str.isdigit, text)) < _LEAST_DIGITS or not has_letters_and_digits(body) or _TEST_MODE.search(text):
        return None
    return candidate if is_random(body, _LEAST) and not reads_like_words(body) else None


def _own_form(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a made value behind such words, unless it could be the digest of a file that they name."""
    text = candidate.text
    if "-" in text and _HEX_DIGEST.search(text.rpartition("-")[2]):
        return None
    return _issued(candidate)


def _address(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a key in an address; of the hooks of a chat with two parts, those whose kind is known."""
    text = candidate.text
    if ("@" in text and "/IncomingWebhook/" not in text) or reads_like_words(text):
        return None
    return _random_check(_ENOUGH_HEX)(candidate) if has_letters_and_digits(text) else None


def _is_atlassian(text: str) -> bool:
    """Tell whether this is a personal token of a data center: the number of its row, a colon, and random bytes."""
    try:
        number, colon, rest = base64.b64decode(text).partition(b":")
    except binascii.Error:
        return False
    return bool(colon) and number.isdigit() and len(number) >= 10 and len(rest) >= 16


def _is_registry_password(text: str) -> bool:
    """Tell whether a registry's settings keep this, and no variable of a program: base64, which has a capital, a digit
    or a sign of its end."""
    made = text.endswith("=") or (has_letters_and_digits(text) and not text.islower()) or is_random(text, 3.6)
    return made and not is_placeholder(text) and not text.isidentifier()


def _is_recovery_phrase(text: str) -> bool:
    words = text.split()
    return len(text) >= len(words) * _LEAST_OF_A_WORD and len(set(words)) >= _LEAST_DIFFERENT


def _is_asaas(text: str) -> bool:
    return has_letters_and_digits(text) and is_random(text.lstrip("$"), 3.4)


# The checks that rows of `checked` name.
_CHECKS: dict[str, Check] = {
    "github": _github,
    "discord": _discord,
    "address": _address,
    "issued": _issued,
    "own_form": _own_form,
    "made": _made(3.0, 0),
    "atlassian": text_check(_is_atlassian),
    "registry_password": text_check(_is_registry_password),
    "recovery_phrase": text_check(_is_recovery_phrase),
    "asaas": text_check(_is_asaas),
    "random": text_check(partial(is_random, least=3.0)),
    "no_placeholder": text_check(lambda text: not is_placeholder(text)),
    # Right beside an issuer's name, or alone in quotes behind it: no digest of a file.
    "in_quotes": text_check(partial(is_generated, least=3.4)),
}


def _patterns_of_table() -> Iterator[CandidatePattern]:
    for name, pattern, prefix, least in _TABLE["random"]:
        yield CandidatePattern(name, _LABEL, pattern, _random_check(least, prefix))
    for name, pattern, prefix, least in _TABLE["made"]:
        yield CandidatePattern(name, _LABEL, pattern, _made(least, prefix))
    for form in _TABLE["issued"]:
        yield CandidatePattern("issued_key", _LABEL, rf"\b{form}", _issued)
    for name, pattern, least, *gate in _TABLE["near"]:
        yield CandidatePattern(name, _LABEL, pattern, _random_check(least), *gate)
    for name, pattern, prefix, least in _TABLE["beside"]:
        yield CandidatePattern(name, _LABEL, pattern, _random_check(least, prefix))
    for name, label, pattern, check, *gate in _TABLE["checked"]:
        yield CandidatePattern(name, label, pattern, _CHECKS[check], *gate)


PATTERNS = tuple(_patterns_of_table())

"""API keys and tokens in the formats of their issuers.

The formats are a table (`vendors.toml`), from the issuers' documents (GitHub's "authentication token formats", Stripe's
"API keys", GitLab's "token overview", AWS's "unique identifiers" and so on) and public scanners. Here are the checks of
their values, and the keys that need more than a row. Keys for a vendor's test mode are no secrets.
"""

from __future__ import annotations

import base64
import binascii
import tomllib
import zlib
from collections.abc import Iterator
from pathlib import Path

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern, Check
from apps.guardrails.regex.re2_patterns import compile_re2
from apps.guardrails.secret_formats.entropy import has_letters_and_digits, is_placeholder, is_random, reads_like_words

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
# A word, what kind of key it is, and random letters: how new issuers write theirs. A hyphen also joins words of
# addresses and files, so that fewer kinds count behind it.
_OWN_FORM = (
    r"\b[a-z][a-z0-9]{1,15}_(?:[a-z0-9]{1,10}_){0,2}?(?:live|prod|production|sk|pat|sat|oat|api|apikey|secret"
    r"|token|key|v\d)_"
    r"[0-9A-Za-z]{20,}(?:_[0-9A-Za-z]{3,64})?"
    r"|\b[a-z][a-z0-9]{1,15}-(?:[a-z0-9]{1,10}-)?(?:live|prod|sk|pat|apikey|secret|token)-[0-9A-Za-z]{24,}"
)
_SEPARATORS = compile_re2(r"[_.:/-]")
# Numbers that no word can be part of.
_PLAIN = compile_re2(rf"{_UUID}|[0-9a-f]{{32,}}$")
_TEST_MODE = compile_re2(r"(?:^|[_-])(?:test|sandbox|sdbx|dev|public|publishable)[_-]|^pk_live")
_LEAST, _LEAST_DIGITS, _HEX_DIGEST = 3.0, 2, compile_re2(r"^(?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64})$")
# Average characters of a word in a recovery phrase (BIP-39), with its blank: few of its words are short.
_LEAST_OF_A_WORD, _LEAST_DIFFERENT = 5, 10
# Keys within the addresses that they open: nodes of chains, hooks of chats.
_IN_ADDRESSES = (
    r"(?:\.infura\.io/(?:ws/)?v3/|\.alchemy(?:api)?\.(?:com|io)/(?:v2|nft/v\d)/|\.quiknode\.pro/"
    r"|\bapi\.softlayer\.com/(?:soap|rest|xmlrpc)/v[0-9.]{1,4}/|\boutlook\.office(?:365)?\.com/webhook/"
    r"|\.tines\.(?:com|io)/webhook/|\.webhook\.office\.com/webhookb2/)"
)


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


def _atlassian(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a personal token of a data center: the number of its row, a colon, and random bytes."""
    try:
        number, colon, rest = base64.b64decode(candidate.text).partition(b":")
    except binascii.Error:
        return None
    return candidate if colon and number.isdigit() and len(number) >= 10 and len(rest) >= 16 else None


def _registry(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what a registry's settings keep, unless it is a variable of a program."""
    text = candidate.text
    made = text.endswith("=") or (has_letters_and_digits(text) and not text.islower()) or is_random(text, 3.6)
    return candidate if made and not is_placeholder(text) and not text.isidentifier() else None


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


def _recovery_phrase(candidate: CandidateMatch) -> CandidateMatch | None:
    words = candidate.text.split()
    long = len(candidate.text) >= len(words) * _LEAST_OF_A_WORD
    return candidate if long and len(set(words)) >= _LEAST_DIFFERENT else None


def _jenkins(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what Jenkins encrypted: who has the master key of the same disk reads it."""
    return None if is_placeholder(candidate.text) else candidate


def _material(candidate: CandidateMatch) -> CandidateMatch | None:
    return candidate if is_random(candidate.text, 3.0) else None


def _address(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a key in an address; of the hooks of a chat with two parts, those whose kind is known."""
    text = candidate.text
    if ("@" in text and "/IncomingWebhook/" not in text) or reads_like_words(text):
        return None
    return _random_check(_ENOUGH_HEX)(candidate) if has_letters_and_digits(text) else None


def _in_quotes(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what stands right beside an issuer's name, or alone in quotes behind it: made, and no digest of a file."""
    text = candidate.text
    made = has_letters_and_digits(text) and is_random(text, 3.4) and not reads_like_words(text)
    return candidate if made else None


def _asaas(candidate: CandidateMatch) -> CandidateMatch | None:
    text = candidate.text
    return candidate if has_letters_and_digits(text) and is_random(text.lstrip("$"), 3.4) else None


def _patterns_of_table() -> Iterator[CandidatePattern]:
    for name, pattern, prefix, least in _TABLE["random"]:
        yield CandidatePattern(name, _LABEL, pattern, _random_check(least, prefix))
    for name, pattern, prefix, least in _TABLE["made"]:
        yield CandidatePattern(name, _LABEL, pattern, _made(least, prefix))
    for form in _TABLE["issued"]:
        yield CandidatePattern("issued_key", _LABEL, rf"\b{form}", _issued)
    for name, pattern, least, *gate in _TABLE["near"]:
        yield CandidatePattern(name, _LABEL, pattern, _random_check(least), *gate)


PATTERNS = (
    *_patterns_of_table(),
    CandidatePattern("github", _LABEL, r"\bgh[oprsu]_[0-9A-Za-z]{36,}", _github, r"\bgh[oprsu]_[0-9A-Za-z]{12}"),
    CandidatePattern(
        "discord",
        _LABEL,
        r"\b[MNO][0-9A-Za-z_-]{22,27}\.[0-9A-Za-z_-]{6}\.[0-9A-Za-z_-]{27,38}",
        _discord,
        r"\b[MNO][0-9A-Za-z_-]{22,27}\.[0-9A-Za-z_-]{6}\.",
    ),
    *(
        CandidatePattern(name, _LABEL, pattern, _random_check(least, prefix))
        for name, pattern, prefix, least in _TABLE["beside"]
    ),
    CandidatePattern(
        "npm_auth",
        "PASSWORD",
        r"(?m)^//[^\s:]{4,}:_(?:auth|password|authToken) ?= ?\"?([^\s\"'$<>{}]{6,})\"?[ \t\r]*$",
        lambda candidate: None if is_placeholder(candidate.text) else candidate,
    ),
    # The same for all registries: base64, which has a capital, a digit or a sign of its end.
    CandidatePattern(
        "npm_auth",
        "PASSWORD",
        r"(?m)^[ \t]*_(?:auth|password|authToken) ?= ?\"?([0-9A-Za-z+/_-]{7,}={0,2})\"?[ \t\r]*$",
        _registry,
    ),
    CandidatePattern("npm_auth", _LABEL, r"_(?:authToken|auth|password) ?= ?\"?([0-9A-Za-z+/_=-]{16,})", _made(3.0, 0)),
    CandidatePattern("account_json", _LABEL, r"\"private_key_id\": ?\"([0-9a-f]{40})\"", _random_check(_ENOUGH_HEX)),
    CandidatePattern("atlassian_server", _LABEL, r"\b([MNO][A-Za-z0-9+/]{43})(?:[^A-Za-z0-9+/=]|$)", _atlassian),
    CandidatePattern("okta", _LABEL, r"\b(?i:okta|ssws)[^\n]{0,40}?\b(00[0-9A-Za-z_-]{40})\b", _random_check(_ENOUGH)),
    *(CandidatePattern("issued_key", _LABEL, pattern, _issued, gate) for pattern, gate in _TABLE["middle"]),
    CandidatePattern(
        "private_key",
        "PRIVATE_KEY",
        r"untrusted comment: [^\n]{0,80}secret key\s{1,2}([0-9A-Za-z+/]{80,}={0,2})",
        _material,
    ),
    # The words from which wallets make their keys; no sentence has so many in a row without a shorter one.
    CandidatePattern(
        "seed_phrase",
        "PRIVATE_KEY",
        r"(?i)(?:mnemonic|seed|(?:seed|recovery|backup|secret)[ _-]?(?:recovery )?phrase)[a-z_\"' ]{0,20}?"
        r"(?: is)?[:=]?\s{0,3}"
        r"[\"'`]?((?:[a-z]{3,8} ){11,23}[a-z]{3,8})\b",
        _recovery_phrase,
    ),
    CandidatePattern("jenkins", _LABEL, r"\{(AQAAABAAA[0-9A-Za-z+/]{20,}={0,2})\}", _jenkins),
    CandidatePattern("jenkins", _LABEL, r"<secret>\{[^{}<>\n]{0,40}?AQAAABAAA ([^{}<>\n]{8,})\}</", _jenkins),
    # Sets of keys that Tink writes in clear, whichever member comes first.
    CandidatePattern(
        "tink",
        "PRIVATE_KEY",
        r"\"value\\{0,6}\"\s*:\s*\\{0,6}\"([0-9A-Za-z+/_-]{12,}={0,2})\\{0,6}\"[^{}]{0,150}?(?:SYMMETRIC|ASYMMETRIC_PRIVATE)\\{0,6}\"",
        _material,
        gate=r"\"(?:A?SYMMETRIC|ASYMMETRIC_PRIVATE)\\{0,6}\"",
    ),
    CandidatePattern(
        "tink",
        "PRIVATE_KEY",
        r"\"(?:SYMMETRIC|ASYMMETRIC_PRIVATE)\\{0,6}\"[^{}]{0,150}?\"value\\{0,6}\"\s*:\s*\\{0,6}\"([0-9A-Za-z+/_-]{12,}={0,2})\\{0,6}\"",
        _material,
    ),
    CandidatePattern(
        "address_key", _LABEL, rf"{_IN_ADDRESSES}([0-9A-Za-z_-]{{32,64}}(?:[@/][0-9A-Za-z/_-]{{32,}})?)", _address
    ),
    *(CandidatePattern("issued_key", _LABEL, pattern, _in_quotes) for pattern in _TABLE["pairs"]),
    # Asaas puts a sign before the name; its other keys are for its sandbox.
    CandidatePattern("issued_key", _LABEL, r"(?:^|[^0-9A-Za-z_-])(\$aact_prod_[0-9A-Za-z_:=-]{20,})", _asaas),
    CandidatePattern(
        "issued_key",
        _LABEL,
        _OWN_FORM,
        _own_form,
        gate=r"[a-z0-9][_-](?:live|prod|production|sk|pat|sat|oat|api|apikey|secret|token|key|v\d)[_-][0-9A-Za-z]{20}",
    ),
)

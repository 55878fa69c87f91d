"""Private keys (PEM, JWK), shared keys of one-time passwords, and signed tokens (JWT).

The armour of PEM (RFC 7468), OpenSSH and PGP (RFC 9580), JSON Web Keys (RFC 7517) and Tokens (RFC 7519), key
URIs of authenticators, and tokens that say what they are (RFC 8959). The whole of a block is the secret.
"""

from __future__ import annotations

import base64
import binascii
import json
from functools import partial

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern
from apps.guardrails.matching.text_checks import text_check
from apps.guardrails.regex.re2_patterns import compile_re2
from apps.guardrails.secret_formats.entropy import is_random, is_shortened

_LABEL = "PRIVATE_KEY"
_MAX_KEY_LENGTH, _MAX_PUBLIC_KEY_LENGTH = 16_384, 4096
_LEAST_BODY = 40
# Content of a key's block, real or as it is written inside a string: base64, line ends, and its headers.
_BODY = compile_re2(r"(?:[0-9A-Za-z+/=\s]|\\[nr]|\"|,|[A-Z][A-Za-z-]+: [^\n\\]{0,80}(?:\n|\\n))*")
_BASE64 = compile_re2(r"[0-9A-Za-z+/]{16,}")
_PRIVATE_LINES = compile_re2(r"\nPrivate-Lines: \d{1,3}\r?\n")
_PUTTY_BODY = compile_re2(r"[0-9A-Za-z+/=\s]*")
_PUTTY_SUM = compile_re2(r"[0-9A-Za-z+/=\s]*?Private-(?:MAC|Hash): [0-9a-f]{40,64}")
_CUT_OFF = compile_re2(r"(?:\\{1,4}[nr])*[\"'`]{0,3}[\s;,+\\]{0,8}$")
_ENCODED = compile_re2(r"[0-9A-Za-z+/]*={0,2}")
# Beside a private member of a JSON Web Key stands of what type it is.
_KEY_TYPE = compile_re2(r"\"kty\\?\" ?: ?\\?\"")
_NEAR = 256
_RANDOM = 3.0
_MISTYPED, _MISTYPED_BITS = compile_re2(r"^eyJ[\w-]{17,}\.eyJ[\w-]{17,}\.[\w-]{16,}$"), 4.5
_EXAMPLE_SUBJECT, _EXAMPLE_NAME, _MAX_HEADER_LENGTH = "1234567890", "John Doe", 2048
_EXAMPLE_CLAIMS = frozenset(("sub", "name", "iat", "exp", "admin"))


def _armoured(candidate: CandidateMatch) -> CandidateMatch | None:
    """Take the block to its end, or as far as it looks like a key where the end is missing."""
    utf8, limit = candidate.utf8, min(len(candidate.utf8), candidate.end + _MAX_KEY_LENGTH)
    another = utf8.find(b"-----BEGIN ", candidate.end, limit)
    limit = another if another >= 0 else limit
    end = utf8.find(b"-----END ", candidate.end, limit)
    body_end = end if end >= 0 else _body_end(utf8, candidate.end, limit)
    body = b"".join(_BASE64.findall(utf8[candidate.end : body_end]))
    if len(body) < _LEAST_BODY or len(set(body)) < 12:
        # Nothing behind it: a text that was cut off there. Behind a head in a program or a document stands the rest.
        return candidate if _CUT_OFF.match(utf8, candidate.end) else None
    if end < 0:
        return CandidateMatch(utf8, candidate.start, body_end)
    if is_shortened(utf8[_body_end(utf8, candidate.end, end) : end]):
        return None
    close = utf8.find(b"-----", end + 9, end + 60)
    return CandidateMatch(utf8, candidate.start, close + 5 if close >= 0 else body_end)


def _putty(candidate: CandidateMatch) -> CandidateMatch | None:
    """Take PuTTY's block to its sum, or as far as its private lines go where the sum is missing."""
    utf8, limit = candidate.utf8, min(len(candidate.utf8), candidate.end + _MAX_KEY_LENGTH)
    private = _PRIVATE_LINES.search(utf8, candidate.end, min(limit, candidate.end + _MAX_PUBLIC_KEY_LENGTH))
    if private is None:
        return None
    start = private.end()
    rest = _PUTTY_SUM.match(utf8, start, limit) or _PUTTY_BODY.match(utf8, start, limit)
    return CandidateMatch(utf8, candidate.start, rest.end())


def _body_end(utf8: bytes, start: int, limit: int) -> int:
    match = _BODY.match(utf8, start, limit)
    return match.end() if match else start


def _encoded(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what decodes to the head of a private key, as cluster configurations write it."""
    try:
        head = base64.b64decode(candidate.text[:64])
    except binascii.Error:
        return None
    if b"PRIVATE KEY" not in head:
        return None
    return CandidateMatch(
        candidate.utf8,
        candidate.start,
        _ENCODED.match(candidate.utf8, candidate.start, candidate.start + _MAX_KEY_LENGTH).end(),
    )


def _is_signed(token: str) -> bool:
    """Tell whether a token's header names an algorithm, and it is not the one every introduction shows.

    Without a signature, as one that was cut off, it counts where its second part says something. One whose header
    cannot be read, as when a sign was lost, counts where three parts are as long as a token's.
    """
    header, payload, *signature = token.split(".", 2)
    decoded = _decoded(header)
    claims = _decoded(payload)
    if decoded is None:
        if not _MISTYPED.match(token) or not is_random(token, _MISTYPED_BITS):
            return False
    elif not isinstance(decoded, dict) or not isinstance(decoded.get("alg"), str):
        return False
    if not isinstance(claims, dict):
        return bool(signature)
    shown = claims.get("sub") == _EXAMPLE_SUBJECT and claims.keys() <= _EXAMPLE_CLAIMS
    return not (shown and claims.get("name") == _EXAMPLE_NAME)


def _of_web_key(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept the private member of a key whose type is said near it."""
    around = candidate.before(_NEAR) + b" " + candidate.after(_NEAR)
    return candidate if _KEY_TYPE.search(around) and is_random(candidate.text, _RANDOM) else None


def _decoded(part: str) -> object:
    if len(part) > _MAX_HEADER_LENGTH:
        return None
    try:
        return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return None


_made = text_check(partial(is_random, least=_RANDOM))
PATTERNS = (
    CandidatePattern(
        "private_key",
        _LABEL,
        r"-{4,5} ?BEGIN (?:[A-Z0-9][A-Z0-9_]{1,15} ){0,4}PRIVATE KEY(?: BLOCK)? ?-{4,5}",
        _armoured,
        wide_context=True,
    ),
    CandidatePattern("private_key", _LABEL, r"PuTTY-User-Key-File-[23]: [^\n]{3,60}\n", _putty, wide_context=True),
    CandidatePattern(
        "private_key", _LABEL, r"\bLS0tLS1CRUdJTi[0-9A-Za-z+/]{60}", _encoded, r"\bLS0tLS1CRUdJTi", wide_context=True
    ),
    CandidatePattern("web_key", _LABEL, r"\"[dk]\\?\" ?: ?\\?\"([0-9A-Za-z_-]{20,})\\?\"", _of_web_key),
    CandidatePattern("one_time_key", "SECRET", r"otpauth://[ht]otp/[^\s\"'<>]{1,}[?&]secret=([A-Z2-7]{16,})", _made),
    CandidatePattern("secret_token", "SECRET", r"\bsecret-token:([0-9A-Za-z_.~%-]{16,})", _made),
    CandidatePattern("bootstrap_token", "SECRET", r"--token[ =]([0-9a-z]{6}\.[0-9a-z]{16})\b", _made),
    CandidatePattern(
        "jwt", "SECRET", r"\beyJ[0-9A-Za-z_-]{8,}\.[0-9A-Za-z_-]{8,}(?:\.[0-9A-Za-z_-]*)?", text_check(_is_signed)
    ),
)

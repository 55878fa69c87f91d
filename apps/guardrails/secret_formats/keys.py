"""Private keys in their armour, and signed tokens.

Knows the armour of PEM (RFC 7468), OpenSSH and PGP (RFC 9580), and JSON Web Tokens (RFC 7519). The whole block
is the secret.
"""

from __future__ import annotations

import base64
import binascii
import json

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern
from apps.guardrails.regex.re2_patterns import compile_re2

_LABEL = "PRIVATE_KEY"
_LONGEST_KEY = 16_384
_LEAST_BODY = 40
# What a key's block holds, real or as it is written inside a string: base64, line ends, and its headers.
_BODY = compile_re2(r"(?:[0-9A-Za-z+/=\s]|\\[nr]|\"|,|[A-Z][A-Za-z-]+: [^\n\\]{0,80}(?:\n|\\n))*")
_BASE64 = compile_re2(r"[0-9A-Za-z+/]{16,}")
_ENCODED = compile_re2(r"[0-9A-Za-z+/]*={0,2}")
_EXAMPLE_SUBJECT, _LONGEST_HEADER = "1234567890", 2048


def _armoured(hit: CandidateMatch) -> CandidateMatch | None:
    """Take the block to its end, or as far as it looks like a key where the end is missing."""
    utf8, limit = hit.utf8, min(len(hit.utf8), hit.end + _LONGEST_KEY)
    another = utf8.find(b"-----BEGIN ", hit.end, limit)
    limit = another if another >= 0 else limit
    end = utf8.find(b"-----END ", hit.end, limit)
    body_end = end if end >= 0 else _body_end(utf8, hit.end, limit)
    body = b"".join(_BASE64.findall(utf8[hit.end : body_end]))
    if len(body) < _LEAST_BODY or len(set(body)) < 12:
        return None
    if end < 0:
        return CandidateMatch(utf8, hit.start, body_end)
    close = utf8.find(b"-----", end + 9, end + 60)
    return CandidateMatch(utf8, hit.start, close + 5 if close >= 0 else body_end)


def _body_end(utf8: bytes, start: int, limit: int) -> int:
    match = _BODY.match(utf8, start, limit)
    return match.end() if match else start


def _encoded(hit: CandidateMatch) -> CandidateMatch | None:
    """Accept what decodes to the head of a private key, as cluster configurations write it."""
    try:
        head = base64.b64decode(hit.text[:64])
    except binascii.Error:
        return None
    if b"PRIVATE KEY" not in head:
        return None
    return CandidateMatch(hit.utf8, hit.start, _ENCODED.match(hit.utf8, hit.start, hit.start + _LONGEST_KEY).end())


def _signed(hit: CandidateMatch) -> CandidateMatch | None:
    """Accept a token whose header names an algorithm, except the one every introduction shows."""
    header, payload, _ = hit.text.split(".", 2)
    decoded = _decoded(header)
    if not isinstance(decoded, dict) or not isinstance(decoded.get("alg"), str):
        return None
    claims = _decoded(payload)
    return None if isinstance(claims, dict) and claims.get("sub") == _EXAMPLE_SUBJECT else hit


def _decoded(part: str) -> object:
    if len(part) > _LONGEST_HEADER:
        return None
    try:
        return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return None


PATTERNS = (
    CandidatePattern(
        "private_key",
        _LABEL,
        r"-----BEGIN (?:(?:RSA|DSA|EC|OPENSSH|ENCRYPTED|SSH2 ENCRYPTED|PGP|ANY) )?PRIVATE KEY(?: BLOCK)?-----",
        _armoured,
        wide_context=True,
    ),
    CandidatePattern(
        "private_key",
        _LABEL,
        r"PuTTY-User-Key-File-[23]: [^\n]{3,60}\n[\n -~]*?\nPrivate-MAC: [0-9a-f]{40,64}",
        lambda hit: hit,
    ),
    CandidatePattern(
        "private_key", _LABEL, r"\bLS0tLS1CRUdJTi[0-9A-Za-z+/]{60}", _encoded, r"\bLS0tLS1CRUdJTi", wide_context=True
    ),
    CandidatePattern("jwt", "SECRET", r"\beyJ[0-9A-Za-z_-]{8,}\.[0-9A-Za-z_-]{8,}\.[0-9A-Za-z_-]*", _signed),
)

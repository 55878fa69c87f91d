"""Keys in the form that programs hold them: lists of bytes, bare DER in base64, seeds, and tokens inside base64.

It recognizes ASN.1's heads of private keys (RFC 5208, 5915, 7292, 8017, 8410) and OpenSSH's as base64 writes them, how
languages list bytes, and how JSON with a private key and GitHub's tokens look in base64. `encoded_settings` knows
settings in base64.
"""

from __future__ import annotations

import base64
import binascii
from functools import partial
from itertools import pairwise

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern
from apps.guardrails.matching.text_checks import text_check
from apps.guardrails.regex.re2_patterns import compile_re2, lazy_pattern
from apps.guardrails.secret_formats.entropy import (
    entropy,
    is_generated,
    is_shortened,
)

_BYTE = compile_re2(r"0[xX][0-9a-fA-F]{1,2}|\d{1,3}")
_FEWEST_BYTES, _FEWEST_DIFFERENT = 8, 6
# How long such a run may be, and how much of it is read: its members stand at its beginning.
_MAX_RUN, _MAX_READ = 16_384, 2048
_BASE64 = compile_re2(r"[0-9A-Za-z+/]*")
_PRIVATE_MEMBER = lazy_pattern(
    r"\"private_key\"\s*:\s*\"-----BEGIN|\"keyMaterialType\"\s*:\s*\"(?:SYMMETRIC|ASYMMETRIC_PRIVATE)"
    r"|\"kty\"\s*:\s*\"[^{}]{0,400}?\"[dk]\"\s*:\s*\"[0-9A-Za-z_-]{16}|\"d\"\s*:\s*\"[0-9A-Za-z_-]{20,}\"[^{}]{0,400}?\"kty\""
)
_EXPONENT = compile_re2(r"<D>\s{0,12}([0-9A-Za-z+/=][0-9A-Za-z+/=\s]{30}[0-9A-Za-z+/=\s]*)</D>")
_WEB_TOKEN = compile_re2(r"eyJ[0-9A-Za-z_-]{8,}\.[0-9A-Za-z_-]{8,}")
_BYTES = r"(?:0x[0-9a-f]{1,2}|\d{1,3})"


def _are_bytes_of_key(text: str) -> bool:
    """Tell whether bytes are in no order: a key, not a table."""
    values = [int(one, 16) if one[:2].lower() == "0x" else int(one) for one in _BYTE.findall(text)]
    if len(values) < _FEWEST_BYTES or len(set(values)) < _FEWEST_DIFFERENT or max(values) > 255:
        return False
    return len({two - one for one, two in pairwise(values)}) >= _FEWEST_DIFFERENT


def _der(candidate: CandidateMatch) -> CandidateMatch | None:
    text = candidate.text  # the first line of OpenSSH's is mostly zeros
    made = text.startswith("b3BlbnNzaC1rZXktdjE") or entropy(text) >= 4.0
    return candidate if made and not is_shortened(candidate.after(8)) else None


def _exponent(candidate: CandidateMatch) -> CandidateMatch | None:
    """Take the private exponent of a key that .NET wrote in XML."""
    found = _EXPONENT.search(candidate.utf8, candidate.end, candidate.end + _MAX_RUN)
    if found is None:
        return None
    value = CandidateMatch(candidate.utf8, *found.span(1))
    return value if entropy(value.text) >= 4.0 else None


def _encoded_json(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept JSON in base64 that names a member which only private keys have."""
    run = _BASE64.match(candidate.utf8, candidate.start, candidate.start + _MAX_RUN)
    text = candidate.utf8[candidate.start : min(run.end(), candidate.start + _MAX_READ)]
    try:
        said = base64.b64decode(text[: len(text) // 4 * 4])
    except binascii.Error:
        return None
    return CandidateMatch(candidate.utf8, candidate.start, run.end()) if _PRIVATE_MEMBER.search(said) else None


def _is_web_token(encoded: str) -> bool:
    """Tell whether this is a signed token (JWT) in base64: three parts, each of them base64 again."""
    try:
        return _WEB_TOKEN.match(base64.b64decode(encoded[: len(encoded) // 4 * 4])) is not None
    except binascii.Error:
        return False


PATTERNS = (
    CandidatePattern(
        "encoded_key",
        "PRIVATE_KEY",
        r"\b(?:ey[AIJ]|ew(?:og|oJ|0K)|W3s|Ww(?:og|oJ|0K))[0-9A-Za-z+/]{60}",
        _encoded_json,
        wide_context=True,
    ),
    CandidatePattern("encoded_token", "SECRET", r"\bZXlK[0-9A-Za-z+/]{60,}={0,2}", text_check(_is_web_token)),
    CandidatePattern(
        "encoded_token",
        "SECRET",
        r"\bZ2(?:h[1vwyz]X|l0aHViX3BhdF)[0-9A-Za-z+/]{44,}={0,2}",
        text_check(lambda text: entropy(text) >= 3.6),
    ),
    CandidatePattern(
        "key_bytes",
        "PRIVATE_KEY",
        r"(?i)(?:key|secret|salt|passw(?:or)?d|seed)[a-z0-9_]{0,12}(?:\[[^\]\n]{0,12}\])?\s{0,3}[=:]?\s{0,3}"
        rf"(?:new |static |const )?[a-z0-9_<>\[\]&:.]{{0,24}}\s{{0,3}}[{{\[(]{{1,3}}\s{{0,8}}({_BYTES}"
        rf"(?:\s{{0,3}},[\s\\]{{0,12}}{_BYTES}){{7,63}})",
        text_check(_are_bytes_of_key),
        often=True,
    ),
    CandidatePattern(
        "private_key",
        "PRIVATE_KEY",
        r"\b(?:MII[0-9A-Za-z+/]{2,4}(?:IBADANBgkqhkiG9w0BAQ|IBAA(?:JBA|KB[Ag]|KCA))"
        r"|MI[GH][0-9A-Za-z+/]AgEAMB[MA]GByqGSM49AgEG|MHcCAQEEI|MHQCAQEEI|MIGkAgEBBD|MIH[bc]AgEBBE|b3BlbnNzaC1rZXktdjE"
        r"|MII[A-P][0-9A-Za-z+/][AQgw]IBAzCC|MII[0-9A-Za-z+/]{3,8}BgkqhkiG9w0BBQ0w|"
        # RFC 5915 without a public key, and RFC 8410: short ones.
        r"MDECAQEEI|MD4CAQEEM|MC4CAQEEI|MC4CAQAwBQYDK2V)[0-9A-Za-z+/]{30,}",
        _der,
    ),
    # CryptoAPI's blobs of private keys: their version and kind, then "RSA2" or "DSS2".
    CandidatePattern(
        "private_key",
        "PRIVATE_KEY",
        r"\bBwIAAA(?:CkAABSU0Ey|AkAABSU0Ey|AiAABEU1My)[0-9A-Za-z+/]{100,}={0,2}",
        _der,
    ),
    # The private exponent of .NET's keys in XML.
    CandidatePattern(
        "private_key",
        "PRIVATE_KEY",
        r"<RSAKey(?:Value|Pair)>",
        _exponent,
        wide_context=True,
    ),
    CandidatePattern(
        "salt",
        "SECRET",
        r"(?i)(?:\b|_)(?:salt|nonce)\d{0,2}\\{0,3}[\"']?(?:\s?:\s?| = |=> ?)[bu]?\\{0,3}[\"']"
        r"([^\s\"'<>]{12,})[\"']",
        text_check(partial(is_generated, least=2.8)),
    ),
)

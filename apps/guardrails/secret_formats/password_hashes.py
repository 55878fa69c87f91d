"""Hashes of passwords, which can be cracked offline: those of `crypt`, of directories, of Windows.

It recognizes the methods of crypt(5) and of frameworks, and the forms of password files, LDIF and dumps of Windows'
accounts. A digest of something else has no method before it and no user beside it.
"""

from __future__ import annotations

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern
from apps.guardrails.secret_formats.entropy import entropy, is_placeholder, reads_like_words

_LABEL = "PASSWORD"
_LEAST_BITS, _LEAST_BY_CHANCE = 3.6, 60
_SIGN = r"[./0-9A-Za-z]"


def _hash(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a whole hash; one of sixty signs holds by chance what looks like a placeholder."""
    text = candidate.text
    stands_for_one = len(text) < _LEAST_BY_CHANCE and is_placeholder(text.lstrip("$"))
    return None if stands_for_one or entropy(text) < _LEAST_BITS else candidate


def _beside_user(candidate: CandidateMatch) -> CandidateMatch | None:
    return candidate


def _traditional(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept the thirteen signs of DES where they are mixed as in no word."""
    text = candidate.text
    mixed = text != text.lower() and text != text.upper() and any(map(str.isdigit, text))
    return candidate if mixed and not reads_like_words(text) else None


PATTERNS = (
    CandidatePattern(
        "password_hash",
        _LABEL,
        r"(?m)^[a-z_][\w.-]{0,31}:(\$(?:1|2[abxy]|5|6|y|apr1)\$[^:\s]{20,})(?::|$)",
        _beside_user,
    ),
    # Servers' files with digests that are broken at once, and directories.
    CandidatePattern(
        "password_hash",
        _LABEL,
        r"(?m)^(?:[A-Za-z_][\w.@-]{0,31}:|userPassword: )(\{S?SHA(?:256|512)?\}[0-9A-Za-z+/]{27,}={0,2})$",
        _beside_user,
        gate=r": ?\{S?SHA",
    ),
    CandidatePattern(
        "password_hash",
        _LABEL,
        rf"(?m)^[a-z_][\w.-]{{0,31}}:({_SIGN}{{13}}):\d{{1,6}}:",
        _traditional,
        gate=r"(?m)^[a-z_][\w.-]*:[./0-9A-Za-z]+:\d+:",
    ),
    # Servers' files, which hold nothing else.
    CandidatePattern(
        "password_hash",
        _LABEL,
        rf"(?m)^[A-Za-z_][\w.@-]{{0,31}}:({_SIGN}{{13}})\r?$",
        _traditional,
        gate=r"(?m)^[A-Za-z_][\w.@-]*:[./0-9A-Za-z]+\r?$",
    ),
    # Windows' accounts: a number, then two digests.
    CandidatePattern(
        "password_hash",
        _LABEL,
        r"(?mi)^[^\s:]{1,64}:\d{1,10}:[0-9a-f]{32}:([0-9a-f]{32})(?::|$)",
        _beside_user,
        gate=r"(?i):\d+:[0-9a-f]+:[0-9a-f]",
    ),
    CandidatePattern(
        "password_hash",
        _LABEL,
        rf"\$2[abxy]\$\d\d\${_SIGN}{{53}}|\$6\$(?:rounds=\d{{1,9}}\$)?{_SIGN}{{4,16}}\${_SIGN}{{86}}"
        rf"|\$5\$(?:rounds=\d{{1,9}}\$)?{_SIGN}{{4,16}}\${_SIGN}{{43}}"
        rf"|\$[PH]\${_SIGN}{{31}}|\$sha1\$\d{{1,9}}\${_SIGN}{{0,64}}\${_SIGN}{{28}}|\$(?:1|apr1)\${_SIGN}{{1,8}}\${_SIGN}{{22}}"
        rf"|\$g?y\${_SIGN}{{1,8}}\${_SIGN}{{1,86}}\${_SIGN}{{43}}|\$7\${_SIGN}{{11,96}}\${_SIGN}{{43}}"
        rf"|\$md5(?:,rounds=\d{{1,9}})?\${_SIGN}{{1,16}}\${{1,2}}{_SIGN}{{22}}|\$3\$\$[0-9a-f]{{32}}"
        r"|\$argon2i?d?\$v=\d+\$m=\d+,t=\d+,p=\d+\$[+/0-9A-Za-z]{11,64}\$[+/0-9A-Za-z]{16,}"
        r"|pbkdf2_sha\d{1,3}\$\d{3,8}\$[0-9A-Za-z]{6,64}\$[+/0-9A-Za-z]{27,90}={0,2}",
        _hash,
        gate=r"\$(?:2[abxy]|[3567PHy1]|apr1|gy|sha1|md5(?:,rounds=\d+)?|argon2i?d?)\$|pbkdf2_sha\d+\$",
    ),
)

"""IP addresses of machines on the public internet.

IANA's registries (in the standard library) tell public ranges. Private, loopback, link-local, documentation and
multicast addresses identify no one and do not count, nor do blocks of addresses and the public resolvers that are
common in examples.
"""

from __future__ import annotations

from ipaddress import AddressValueError, IPv4Address, IPv6Address

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern
from apps.guardrails.regex.re2_patterns import compile_re2

# Four numbers below this are rather a version.
_SMALL = 20
# So many groups of an address of version 6 have three digits or four.
_MOSTLY_LONG = 5
_MAX_IPV4_LENGTH = len("255.255.255.255")
_RESOLVERS = frozenset({"8.8.8.8", "8.8.4.4", "1.1.1.1", "1.0.0.1", "9.9.9.9", "208.67.222.222", "208.67.220.220"})
_RESOLVERS_6 = frozenset(
    {"2001:4860:4860::8888", "2001:4860:4860::8844", "2606:4700:4700::1111", "2606:4700:4700::1001"}
)
_VERSION = compile_re2(
    r"(?i)(?:\bversions?|\bver\.?|\brelease|\bbuild|\bfirmware|\brev(?:ision)?\.?|\bsection|\bchapter|§|"
    r"\bupgraded?(?: from| to)?|"
    r"\brule|\bclause|\bparagraph|\bbump(?:ed)?|[<>~^]=?|==)['\"\s:=]{0,4}v?$"
)
_RELEASE = compile_re2(
    r"(?i)\b(?:versions?|releases?|upgrad\w+|updat\w+|bump\w*|build|firmware|stable|oids?|snmp|asn\.1)\b[^\n]{0,32}$"
)
# How an address begins that is neither of a private network nor loopback nor multicast: what is, is not even judged.
_PUBLIC = (
    r"(?:(?:[1-9]|1[13-9]|[2-9]\d|1[013-8]\d|12[0-689]|19[013-9]|2[01]\d|22[0-3])\.\d{1,3}"
    r"|192\.(?:\d\d?|1[0-57-9]\d|16[0-79]|2\d\d))"
)
_DECIMAL = compile_re2(r"\d?\.\d+[ ,]-?$")
_ADDRESS = compile_re2(r"(?i)\bip\b|ipv?4?|address|host|server|client|ping|ssh|addr|remote|adresse|dirección")


def _check_4(candidate: CandidateMatch) -> CandidateMatch | None:
    if (
        candidate.end - candidate.start > _MAX_IPV4_LENGTH
        or not candidate.stands_alone()
        or (candidate.before(1) in (b"/", b"-", b".") and not candidate.before(3).endswith(b"//"))
    ):
        return None
    # Cheap things first: lists of numbers with points are long.
    if _DECIMAL.search(candidate.before(10)):
        return None
    try:
        address = IPv4Address(candidate.text)
    except AddressValueError:
        return None
    after = candidate.after(4)
    if (
        not address.is_global
        or address.is_multicast
        or candidate.text in _RESOLVERS
        or (after[:1] == b"-" and after[1:2].isalpha())
    ):
        return None
    if after[:1] == b"/" and after[1:2].isdigit() and not after.startswith(b"/32"):
        return None
    if _VERSION.search(candidate.before(24)):
        return None
    doubtful = all(int(part) < _SMALL for part in candidate.text.split(".")) or _RELEASE.search(candidate.before(48))
    return None if doubtful and not _ADDRESS.search(candidate.before(48)) else candidate


def _check_6(candidate: CandidateMatch) -> CandidateMatch | None:
    before, after = candidate.before(1), candidate.after(3)
    if before.isalnum() or before in (b":", b"_") or (after[:1].isalnum() or after[:1] in (b":", b"_")):
        return None
    try:
        address = IPv6Address(candidate.text)
    except AddressValueError:
        return None
    block = after[:1] == b"/" and after[1:2].isdigit() and not after.startswith(b"/12")
    return candidate if address.is_global and not block and address.compressed not in _RESOLVERS_6 else None


def _check_whole_6(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept eight written groups, most of them long; short ones are a fingerprint's or a clock's."""
    long = sum(len(group) >= 3 for group in candidate.text.split(":"))
    return _check_6(candidate) if long >= _MOSTLY_LONG else None


PATTERNS = (
    CandidatePattern("ip_address", "IP_ADDRESS", rf"\b{_PUBLIC}(?:\.\d{{1,3}}){{2,}}\b", _check_4),
    CandidatePattern("ip_address", "IP_ADDRESS", r"(?i)\b[23][0-9A-F]{3}(?::[0-9A-F]{0,4}){2,7}", _check_6),
    CandidatePattern("ip_address", "IP_ADDRESS", r"(?i)\b[0-9A-F]{1,4}(?::[0-9A-F]{1,4}){7}\b", _check_whole_6),
)

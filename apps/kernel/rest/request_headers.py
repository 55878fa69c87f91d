"""Readers of request headers: API key, client address behind proxies, preference of a page to data. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Final
from urllib.parse import parse_qs

from apps.kernel.errors import Unauthenticated

# Maximum characters; our tokens are shorter.
_MAX_TOKEN_LENGTH = 512


def find_bearer(header: str | None) -> str | None:
    """Return the bearer token, or None if the header is absent, empty, too long, or has another scheme."""
    scheme, _, token = (header or "").strip().partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and 0 < len(token) <= _MAX_TOKEN_LENGTH else None


MISSING_KEY = "Missing or invalid API key"
# Beside the bearer: Anthropic's clients, Azure's, Google's.
_PLAIN = ("x-api-key", "api-key", "x-goog-api-key")
KEY_HEADERS = ("authorization", *_PLAIN)


def find_presented_key(headers: Mapping[str, str], query: str = "") -> str:
    """Return the key in `Authorization: Bearer`, one of the plain headers, or `key` in a given query string.

    Names of headers are in lower case, or case-insensitive. Raises Unauthenticated without a key, or with two different
    ones: guessing the right one would be a security hole.
    """
    bearer = find_bearer(headers.get("authorization"))
    if bearer and len(headers) == 1 and not query:
        # The common case.
        return bearer
    found = {"Authorization": bearer} if bearer else {}
    for name in _PLAIN:
        if plain := headers.get(name, "").strip():
            found[name] = plain
    if query and (stated := [value.strip() for value in parse_qs(query).get("key", ())]):
        # Each value of a repeated header is a key.
        found |= {f"key ({place})" if place else "key": value for place, value in enumerate(stated) if value}
    tokens = set(found.values())
    if len(tokens) > 1:
        kind = "headers and parameters" if "key" in found else "headers"
        raise Unauthenticated(f"The {kind} {' and '.join(found)} carry different keys")
    token = tokens.pop() if tokens else ""
    if not token or len(token) > _MAX_TOKEN_LENGTH:
        raise Unauthenticated(MISSING_KEY)
    return token


_PAGE, _DATA = "text/html", "application/json"
# Characters of the header that are read: browsers send about two hundred.
_MAX_HEADER: Final = 1_000


def prefers_page(accept: str) -> bool:
    """Return whether `Accept` prefers pages to data. `*/*` alone, or an empty header, does not."""
    if _PAGE not in accept[:_MAX_HEADER]:
        return False
    weights = {_PAGE: 0.0, _DATA: 0.0}
    for stated in accept[:_MAX_HEADER].lower().split(","):
        name, *parameters = (part.strip() for part in stated.split(";"))
        if name in weights:
            weights[name] = next((_weight_of(one[2:]) for one in parameters if one.startswith("q=")), 1.0)
    return weights[_PAGE] > 0 and weights[_PAGE] >= weights[_DATA]


def _weight_of(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


# Characters of the longest address (IPv6 with a zone); longer texts are no addresses and are not cached.
_MAX_ADDRESS_LENGTH = 64


def believed_address(peer: str, forwarded_for: str, proxies: int) -> str:
    """Return the address that the outermost of the trusted proxies saw (`X-Forwarded-For`), or the connection's peer.

    An IPv6 address is cut to its /64, which belongs to one customer.
    """
    hops = forwarded_for.split(",")
    written = hops[-min(proxies, len(hops))].strip() if proxies else ""
    word = written or peer
    return (_customer_of(word) if len(word) <= _MAX_ADDRESS_LENGTH else None) or peer


# Cached: parsing an address takes longer than the rest of a refused request, and clients come again.
@lru_cache(maxsize=4096)
def _customer_of(word: str) -> str | None:
    """Return the address or network of one customer; None for an invalid address."""
    try:
        address = ip_address(word)
    except ValueError:
        return None
    return str(address) if address.version == 4 else str(ip_network((address, 64), strict=False))

"""Finds the API key of a request in its headers or, for Google's clients, its query. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qs

from apps.kernel.errors import Unauthenticated
from apps.kernel.rest.request_headers import MAX_LENGTH, find_bearer

MISSING = "Missing or invalid API key"
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
    if not token or len(token) > MAX_LENGTH:
        raise Unauthenticated(MISSING)
    return token

"""Which API key a request presents. Pure.

Knows the two headers it may come in. Must never know whether the key is any good.
"""

from __future__ import annotations

from collections.abc import Mapping

from apps.kernel.errors import Unauthenticated
from apps.kernel.rest.bearer import MAX_LENGTH, find_bearer

MISSING = "Missing or invalid API key"


def find_presented_key(headers: Mapping[str, str]) -> str:
    """Return the key of `Authorization: Bearer` or `x-api-key`; names are in lower case, or their case is ignored.

    Raises Unauthenticated when there is none, or two that differ: guessing which was meant would be a way in.
    """
    bearer, plain = find_bearer(headers.get("authorization")), headers.get("x-api-key", "").strip()
    if bearer and plain and bearer != plain:
        raise Unauthenticated("The headers Authorization and x-api-key carry different keys")
    token = bearer or plain
    if not token or len(token) > MAX_LENGTH:
        raise Unauthenticated(MISSING)
    return token

"""The token of an `Authorization: Bearer` header. Pure."""

from __future__ import annotations

# Maximum characters; our tokens are shorter.
MAX_LENGTH = 512


def find_bearer(header: str | None) -> str | None:
    """Return the bearer token, or None if the header is absent, empty, too long, or has another scheme."""
    scheme, _, token = (header or "").strip().partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and 0 < len(token) <= MAX_LENGTH else None

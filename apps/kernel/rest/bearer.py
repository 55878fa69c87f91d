"""The token of an `Authorization: Bearer` header. Pure; must never know what the token opens."""

from __future__ import annotations

# Characters; no token of ours is longer, and nothing longer is worth a look.
MAX_LENGTH = 512


def find_bearer(header: str | None) -> str | None:
    """Return the bearer token, or None when the header is absent, of another scheme, empty, or over long."""
    scheme, _, token = (header or "").strip().partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and 0 < len(token) <= MAX_LENGTH else None

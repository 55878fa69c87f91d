"""Token scheme: an API key as `Authorization: Token …`, as Deepgram takes it.

A credential is never logged or put into a URL.
"""

from __future__ import annotations

from apps.gateway.access.schemes import SignableRequest


def authorize(secret: str, request: SignableRequest) -> dict[str, str]:
    """Return the header that presents the key."""
    return {"Authorization": f"Token {secret}"}

"""API key scheme: the key of an Azure resource in Azure's own header, and for Anthropic's models in Anthropic's, too.

A credential is never logged or put into a URL.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from apps.gateway.access.schemes import SignableRequest

_ANTHROPICS = "/anthropic/"


def authorize(secret: str, request: SignableRequest) -> dict[str, str]:
    """Return the headers that present the key: where Anthropic's models are, both that Anthropic's own client sends."""
    headers = {"api-key": secret}
    if _ANTHROPICS in urlsplit(request.url).path:
        headers["x-api-key"] = secret
    return headers

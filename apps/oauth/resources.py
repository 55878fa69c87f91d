"""Protected resources: the addresses that access tokens are for, and their metadata (RFC 8414, 8707, 9728).

All addresses are derived from `PUBLIC_URL`, never from a request's `Host`.
"""

from __future__ import annotations

import re
from typing import Final

from django.conf import settings

# Permissions of a token, as the consent page describes them.
MODELS: Final = "models"
TOOLS: Final = "tools"
SCOPES: Final[dict[str, str]] = {
    MODELS: "List and call models, at your project's cost",
    TOOLS: "Call tools of your organization's MCP servers",
}
_ROOT: Final = "/mcp"
_PATH: Final = re.compile(r"/mcp(/[A-Za-z0-9._~-]{1,100})?")
_METADATA: Final = "/.well-known/oauth-protected-resource"


def issuer() -> str:
    """Return the authorization server's identifier, which is also the base of its metadata address."""
    return str(settings.PUBLIC_URL)


def resource_of(path: str) -> str:
    """Return the identifier of the resource at a path such as `/mcp`; tokens are bound to it."""
    return issuer() + path


def read_resource(asked: str | None) -> str | None:
    """Return the resource that a client names, `/mcp` by default; None if it does not exist.

    A trailing slash is ignored.
    """
    if not asked:
        return resource_of(_ROOT)
    path = asked.removeprefix(issuer()).rstrip("/")
    return resource_of(path) if asked.startswith(issuer()) and _PATH.fullmatch(path) else None


def metadata_url(path: str = _ROOT) -> str:
    """Return the metadata address of the resource at a path (RFC 9728)."""
    return f"{issuer()}{_METADATA}{path}"


def www_authenticate(path: str = _ROOT, *, error: str | None = None, scope: str | None = None) -> str:
    """Return the `WWW-Authenticate` header of a 401 or 403 at a resource, which leads clients to the sign-in.

    `error` is RFC 6750's (`invalid_token` if a token was sent, `insufficient_scope`); `scope` are the required scopes,
    separated by spaces.
    """
    said = [("error", error), ("scope", scope), ("resource_metadata", metadata_url(path))]
    return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in said if value)

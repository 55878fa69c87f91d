"""Protected resources: the addresses that an access token can be for, and where clients read how to get one.

Knows addresses and scopes (RFC 8414, 8707, 9728). Must never know tokens. All addresses are made of `PUBLIC_URL`, never
of a request's `Host`.
"""

from __future__ import annotations

import re
from typing import Final

from django.conf import settings

# What a token lets a program do, in the words of the consent page.
MODELS: Final = "models"
TOOLS: Final = "tools"
SCOPES: Final[dict[str, str]] = {
    MODELS: "List models and ask them, at your project's cost",
    TOOLS: "Call tools of the MCP servers that your organization has registered",
}
_ROOT: Final = "/mcp"
_PATH: Final = re.compile(r"/mcp(/[A-Za-z0-9._~-]{1,100})?")
_METADATA: Final = "/.well-known/oauth-protected-resource"


def issuer() -> str:
    """Return the authorization server's identifier, which is where its metadata is, too."""
    return str(settings.PUBLIC_URL)


def resource_of(path: str) -> str:
    """Return the identifier of the resource at a path such as `/mcp`: what its tokens are bound to."""
    return issuer() + path


def read_resource(asked: str | None) -> str | None:
    """Return the resource that a client names, `/mcp` for none; None when there is no such resource here.

    A slash at the end says nothing.
    """
    if not asked:
        return resource_of(_ROOT)
    path = asked.removeprefix(issuer()).rstrip("/")
    return resource_of(path) if asked.startswith(issuer()) and _PATH.fullmatch(path) else None


def metadata_url(path: str = _ROOT) -> str:
    """Return where a client reads about the resource at a path (RFC 9728)."""
    return f"{issuer()}{_METADATA}{path}"


def www_authenticate(path: str = _ROOT, *, error: str | None = None, scope: str | None = None) -> str:
    """Return the `WWW-Authenticate` of a 401 or 403 at a resource's path, which leads clients to the sign-in.

    `error` is RFC 6750's (`invalid_token` where a token was sent, `insufficient_scope`); `scope` are the scopes that it
    takes, separated by spaces.
    """
    said = [("error", error), ("scope", scope), ("resource_metadata", metadata_url(path))]
    return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in said if value)

"""Redirect URIs: validation of addresses to which a browser takes a code. Pure.

Allowed are pages over TLS, programs on the same machine (RFC 8252: loopback, any port), and private schemes that a
program has registered with its system.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

MAX_URIS: Final = 20
# Characters.
MAX_LENGTH: Final = 1_000
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_HOST: Final = re.compile(r"[A-Za-z0-9.:-]{1,253}")
# RFC 8252: a private scheme is a reversed domain, so that no system scheme is taken. Editors have their own names.
_PRIVATE_SCHEME: Final = re.compile(r"[a-z][a-z0-9+-]*(\.[a-z0-9+-]+)+")
_KNOWN_SCHEMES: Final = frozenset({"claude", "cursor", "vscode", "vscode-insiders", "vscodium", "windsurf", "zed"})


def redirect_problem(uri: str) -> str | None:
    """Return the problem of a redirect URI; None if it is valid."""
    if not 0 < len(uri) <= MAX_LENGTH or not (uri.isascii() and uri.isprintable()) or " " in uri or "\\" in uri:
        return f"Must be an absolute URI of at most {MAX_LENGTH} characters, without spaces or backslashes"
    if "#" in uri:
        return "Must have no fragment"
    try:
        parts = urlsplit(uri)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "Must be an absolute URI"
    if "@" in parts.netloc:
        return "Must have no user or password"
    if not uri.startswith(f"{parts.scheme}:"):
        return "Must have its scheme in lower case"
    return _problem_of_scheme(parts, host)


def _problem_of_scheme(parts: SplitResult, host: str | None) -> str | None:
    match parts.scheme:
        case "https":
            return None if host and _HOST.fullmatch(host) else "Must have a host"
        case "http":
            return None if host in _LOOPBACK else "Must be https, or http at 127.0.0.1, [::1] or localhost"
    if parts.scheme in _KNOWN_SCHEMES or _PRIVATE_SCHEME.fullmatch(parts.scheme):
        return None
    return "Must be https, http on this machine, or a program's own scheme such as com.example.app"


def shown_host(uri: str) -> str:
    """Return the target of a redirect URI for display: the host, or a program on the person's machine."""
    parts = urlsplit(uri)
    if parts.scheme == "https":
        return parts.netloc
    if parts.scheme == "http":
        return f"a program on this computer ({parts.netloc})"
    return f"the program on this computer that opens {parts.scheme}: links"


def form_source(uri: str) -> str:
    """Return the source expression of a redirect URI for a content security policy."""
    parts = urlsplit(uri)
    if parts.scheme in {"http", "https"} and "[" not in parts.netloc:
        return f"{parts.scheme}://{parts.netloc}"
    return f"{parts.scheme}:"


def scheme_of(uri: str) -> str:
    """Return the scheme of a redirect URI."""
    return urlsplit(uri).scheme

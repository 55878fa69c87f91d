"""Credentials of MCP servers: a token and extra headers, encrypted together, and the headers that present them.

They never appear in logs or exceptions. Some header names are reserved.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping
from typing import Final

import msgspec

from apps.kernel.secrets.encryption import decrypt, encrypt

# Authentication schemes in front of a token in a header.
_SCHEMES: Final = frozenset({"bearer", "token", "apikey", "api-key", "key"})
# Extra headers of a server, and characters of the value of one.
MAX_HEADERS, MAX_VALUE = 10, 4_000
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}[A-Za-z0-9])?")
# Headers that frame the request, state its target, or belong to the protocol.
_RESERVED: Final = frozenset(
    {
        *("accept", "accept-encoding", "cdn-loop", "connection", "content-encoding", "content-length", "content-type"),
        *("expect", "forwarded", "host", "keep-alive", "last-event-id", "origin", "te", "trailer", "transfer-encoding"),
        *("upgrade", "user-agent", "via"),
    }
)
_RESERVED_PREFIXES: Final = ("mcp-", "proxy-", "x-forwarded-")


class Credentials(msgspec.Struct, frozen=True):
    """The credentials for a server: a token for `Authorization: Bearer`, and extra headers. Either may be empty."""

    token: str = ""
    headers: dict[str, str] = {}

    def __repr__(self) -> str:
        return "Credentials(...)"

    @property
    def presented(self) -> dict[str, str]:
        """The headers with the credentials."""
        bearer = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {**self.headers, **bearer}

    @property
    def secrets(self) -> list[str]:
        """The values to redact."""
        return [secret for value in (self.token, *self.headers.values()) if value for secret in _secrets_in(value)]


def _secrets_in(value: str) -> list[str]:
    """Return a header's value and the secrets in it: the token of a scheme, or the pair and the password of Basic."""
    scheme, _, rest = value.partition(" ")
    if scheme.lower() != "basic" or not rest:
        return [value, rest] if rest and scheme.lower() in _SCHEMES else [value]
    try:
        pair = b64decode(rest, validate=True).decode()
    except ValueError:
        return [value, rest]
    return [value, rest, pair, pair.partition(":")[2]]


def encrypt_credentials(credentials: Credentials) -> bytes:
    """Return them encrypted with the newest encryption key."""
    return encrypt(msgspec.json.encode(credentials))


def decrypt_credentials(sealed: bytes) -> Credentials:
    """Return them in clear. Raises UnreadableSecretError."""
    return msgspec.json.decode(decrypt(bytes(sealed)), type=Credentials)


def header_fault(headers: Mapping[str, object], *, has_token: bool) -> str | None:
    """Return the problem of extra headers, without their values; None if they are valid."""
    if len(headers) > MAX_HEADERS:
        return f"Must be at most {MAX_HEADERS} headers"
    if len({name.lower() for name in headers}) < len(headers):
        return "Must name each header once"
    for name, value in headers.items():
        lower = name.lower()
        if not _HEADER_NAME.fullmatch(name):
            return "Names must be letters, digits and hyphens, at most 64"
        if lower in _RESERVED or lower.startswith(_RESERVED_PREFIXES):
            return f"{name}: The gateway sets this header"
        if lower == "authorization" and has_token:
            return "authorization: Give a token or this header, not both"
        if not isinstance(value, str) or not 0 < len(value) <= MAX_VALUE:
            return f"{name}: Must be a string of 1 to {MAX_VALUE} characters"
        if not (value.isascii() and value.isprintable()) or value != value.strip():
            return f"{name}: Must be printable ASCII characters without leading or trailing spaces"
    return None

"""Credentials of alert destinations: a type for each kind, stored encrypted.

They never appear in logs or exceptions.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from apps.kernel.secrets.encryption import decrypt, encrypt
from apps.log_sinks.credentials import WebhookSecret

# Characters of a secret that are shown, its last ones.
_SHOWN = 4


class IncomingWebhook(msgspec.Struct, frozen=True, tag_field="kind", tag="address"):
    """The secret address of an incoming webhook of Slack or Teams."""

    url: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"

    @property
    def masked(self) -> str:
        """The displayable part."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}/...{self.url[-_SHOWN:]}"

    @property
    def secrets(self) -> list[str]:
        """The values to redact."""
        parts = urlsplit(self.url)
        return [one for one in (self.url, parts.path.strip("/"), parts.query) if one]


class RoutingKey(msgspec.Struct, frozen=True, tag_field="kind", tag="pagerduty"):
    """The integration key of a service at PagerDuty."""

    routing_key: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"

    @property
    def masked(self) -> str:
        """The displayable part."""
        return f"...{self.routing_key[-_SHOWN:]}"

    @property
    def secrets(self) -> list[str]:
        """The values to redact."""
        return [self.routing_key]


Credentials = WebhookSecret | IncomingWebhook | RoutingKey


def encrypt_credentials(credentials: Credentials) -> bytes:
    """Return them encrypted with the newest encryption key."""
    return encrypt(msgspec.json.encode(credentials))


def decrypt_credentials(sealed: bytes) -> Credentials:
    """Return them in clear. Raises UnreadableSecretError."""
    credentials: Credentials = msgspec.json.decode(decrypt(bytes(sealed)), type=Credentials)
    return credentials

"""Credentials of destinations: the base of their types, the one that is common, its field in the API, and encryption.

They never appear in logs or exceptions.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
from rest_framework import serializers

from apps.destinations.exchange import DeliveryFailed
from apps.kernel.rest.serializers import TextField
from apps.kernel.secrets.encryption import UnreadableSecretError, decrypt, encrypt
from apps.kernel.secrets.webhook_signature import secret_key

# Characters of a secret that are shown, its last ones.
SHOWN = 4


class Secrets(Protocol):
    """Credentials of any kind."""

    @property
    def masked(self) -> str:
        """The displayable part."""

    @property
    def secrets(self) -> list[str]:
        """The values to redact."""


class SealedStruct(msgspec.Struct, frozen=True, tag_field="kind"):
    """Base of credentials; the representation has no values."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"


class WebhookSecret(SealedStruct, frozen=True, tag="webhook"):
    """The signing secret of a webhook: `whsec_` and base64."""

    secret: str

    @property
    def key(self) -> bytes:
        """The bytes of the secret. Raises ValueError."""
        return secret_key(self.secret)

    @property
    def masked(self) -> str:
        """The displayable part."""
        return f"...{self.secret[-SHOWN:]}"

    @property
    def secrets(self) -> list[str]:
        """The values to redact."""
        return [self.secret]


def encrypt_credentials(credentials: SealedStruct) -> bytes:
    """Return credentials encrypted with the newest encryption key."""
    return encrypt(msgspec.json.encode(credentials))


def decrypt_credentials(encrypted: bytes | memoryview, credentials_type: Any) -> Any:
    """Return credentials in clear; `credentials_type` is their type, a union. Raises UnreadableSecretError."""
    return msgspec.json.decode(decrypt(bytes(encrypted)), type=credentials_type)


def credentials_to_send(encrypted: bytes | memoryview, credentials_type: Any) -> Any:
    """Return credentials in clear, for a delivery. Raises DeliveryFailed."""
    try:
        return decrypt_credentials(encrypted, credentials_type)
    except UnreadableSecretError as error:
        raise DeliveryFailed("No key in ENCRYPTION_KEYS decrypts its credentials: enter them again") from error


def sealed_columns(credentials: Any) -> dict[str, Any]:
    """Return the columns of a destination that hold its credentials."""
    return {"encrypted_credentials": encrypt_credentials(credentials), "masked_credentials": credentials.masked}


# Characters of a credential.
MAX_KEY = 200


class WebhookSecretField(TextField):
    """The signing secret of a webhook, as in Standard Webhooks (https://www.standardwebhooks.com); never required."""

    def __init__(self) -> None:
        super().__init__(
            max_length=MAX_KEY, required=False, help_text="For a webhook: whsec_ followed by 24 to 64 bytes in base64"
        )

    def to_internal_value(self, data: Any) -> str:
        """Return the secret. Raises ValidationError."""
        text = super().to_internal_value(data)
        try:
            secret_key(text)
        except ValueError as error:
            raise serializers.ValidationError("Must be whsec_ followed by 24 to 64 bytes in base64") from error
        return text

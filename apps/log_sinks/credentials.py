"""Credentials of log sinks: a type for each kind of sink, stored encrypted.

They never appear in logs or exceptions.
"""

from __future__ import annotations

import base64

import msgspec

from apps.kernel.secrets.encryption import decrypt, encrypt
from apps.kernel.secrets.webhook_signature import secret_key


class _Sealed(msgspec.Struct, frozen=True, tag_field="kind"):
    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"


class WebhookSecret(_Sealed, frozen=True, tag="webhook"):
    """The signing secret of a webhook: `whsec_` and base64."""

    secret: str

    @property
    def key(self) -> bytes:
        """The bytes of the secret. Raises ValueError."""
        return secret_key(self.secret)

    @property
    def masked(self) -> str:
        """The displayable part."""
        return f"...{self.secret[-4:]}"

    @property
    def secrets(self) -> list[str]:
        """The values to redact."""
        return [self.secret]


class BucketKeys(_Sealed, frozen=True, tag="s3"):
    """The access key of a bucket."""

    access_key_id: str
    secret_access_key: str

    @property
    def masked(self) -> str:
        """The displayable part: the id is public."""
        return self.access_key_id

    @property
    def secrets(self) -> list[str]:
        """The values to redact."""
        return [self.secret_access_key]


class OtlpKeys(_Sealed, frozen=True, tag="otlp"):
    """Keys for basic authentication: a public and a secret key."""

    public_key: str
    secret_key: str

    @property
    def masked(self) -> str:
        """The displayable part: the public key."""
        return self.public_key

    @property
    def basic(self) -> str:
        """The value of `Authorization`."""
        return "Basic " + base64.b64encode(f"{self.public_key}:{self.secret_key}".encode()).decode()

    @property
    def secrets(self) -> list[str]:
        """The values to redact."""
        return [self.secret_key, self.basic.removeprefix("Basic ")]


Credentials = WebhookSecret | BucketKeys | OtlpKeys


def encrypt_credentials(credentials: Credentials) -> bytes:
    """Return them encrypted with the newest encryption key."""
    return encrypt(msgspec.json.encode(credentials))


def decrypt_credentials(sealed: bytes) -> Credentials:
    """Return them in clear. Raises UnreadableSecretError."""
    credentials: Credentials = msgspec.json.decode(decrypt(bytes(sealed)), type=Credentials)
    return credentials

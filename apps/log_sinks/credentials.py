"""Credentials of log sinks: a type for each kind of sink, stored encrypted.

They never appear in logs or exceptions.
"""

from __future__ import annotations

import base64

from apps.destinations.credentials import SealedStruct, WebhookSecret


class BucketKeys(SealedStruct, frozen=True, tag="s3"):
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


class OtlpKeys(SealedStruct, frozen=True, tag="otlp"):
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

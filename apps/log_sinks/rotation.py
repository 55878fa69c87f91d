"""Rotation: encrypts the credentials of log sinks with the newest encryption key."""

from __future__ import annotations

from apps.destinations.credentials import decrypt_credentials, encrypt_credentials
from apps.kernel.secrets.encryption import Rotated
from apps.log_sinks.access import SINKS
from apps.log_sinks.credentials import Credentials

# Name of the secrets for the operator.
WORDS = "credentials of log sinks"


def rotate() -> Rotated:
    """Encrypt every sink's credentials with the newest encryption key, so that older ones can be removed."""
    return SINKS.rotate(_reencrypt)


def _reencrypt(encrypted: bytes) -> bytes:
    return encrypt_credentials(decrypt_credentials(encrypted, Credentials))

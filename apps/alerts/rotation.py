"""Rotation: encrypts the credentials of alert destinations with the newest encryption key."""

from __future__ import annotations

from apps.alerts.access import DESTINATIONS
from apps.alerts.credentials import Credentials
from apps.destinations.credentials import decrypt_credentials, encrypt_credentials
from apps.kernel.secrets.encryption import Rotated

# Name of the secrets for the operator.
WORDS = "credentials of alert destinations"


def rotate() -> Rotated:
    """Encrypt every destination's credentials with the newest encryption key, so that older ones can be removed."""
    return DESTINATIONS.rotate(_reencrypt)


def _reencrypt(encrypted: bytes) -> bytes:
    return encrypt_credentials(decrypt_credentials(encrypted, Credentials))

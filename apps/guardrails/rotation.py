"""Rotation: encrypts the secrets of outside guards with the newest encryption key."""

from __future__ import annotations

from apps.guardrails.models import CustomRule
from apps.kernel.secrets.encryption import Rotated, decrypt, encrypt, reencrypt_rows

# Name of the secrets for the operator.
WORDS = "secrets of outside guards"


def rotate() -> Rotated:
    """Encrypt every guard's secrets with the newest encryption key, so that older ones can be removed."""
    return reencrypt_rows(CustomRule.objects.exclude(encrypted_secrets=b""), "encrypted_secrets", _reencrypt)


def _reencrypt(encrypted: bytes) -> bytes:
    return encrypt(decrypt(encrypted))

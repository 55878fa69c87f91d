"""Rotation: encrypts the credentials of log sinks with the newest encryption key."""

from __future__ import annotations

from apps.kernel.secrets.encryption import Rotated, reencrypt_rows
from apps.log_sinks.credentials import decrypt_credentials, encrypt_credentials
from apps.log_sinks.models import LogSink

# Name of the secrets for the operator.
WORDS = "credentials of log sinks"


def rotate() -> Rotated:
    """Encrypt every sink's credentials with the newest encryption key, so that older ones can be removed."""
    living = LogSink.objects.exclude(status=LogSink.Status.DELETED)
    return reencrypt_rows(living, "encrypted_credentials", _reencrypt)


def _reencrypt(encrypted: bytes) -> bytes:
    return encrypt_credentials(decrypt_credentials(encrypted))

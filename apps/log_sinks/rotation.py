"""Rotation: credentials of log sinks are sealed anew with the newest encryption key."""

from __future__ import annotations

from apps.kernel.reencryption import Rotated, reencrypt_rows
from apps.log_sinks.credentials import seal, unseal
from apps.log_sinks.models import LogSink

# What is sealed, in words for whoever rotates.
WORDS = "credentials of log sinks"


def rotate() -> Rotated:
    """Seal every sink's credentials with the newest encryption key, so that older ones can be taken away."""
    living = LogSink.objects.exclude(status=LogSink.Status.DELETED)
    return reencrypt_rows(living, "encrypted_credentials", lambda sealed: seal(unseal(sealed)))

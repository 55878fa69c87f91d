"""Encryption of secrets at rest (Fernet), with keys that can be rotated. Secrets never appear in logs or exceptions."""

from __future__ import annotations

from functools import lru_cache

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings


class UnreadableSecretError(Exception):
    """An encrypted secret that no encryption key decrypts."""


def encrypt(secret: bytes) -> bytes:
    """Return the secret encrypted with the newest encryption key."""
    return _fernet(tuple(settings.ENCRYPTION_KEYS)).encrypt(secret)


def decrypt(encrypted: bytes) -> bytes:
    """Return the decrypted secret, with any of the encryption keys. Raises UnreadableSecretError."""
    try:
        return _fernet(tuple(settings.ENCRYPTION_KEYS)).decrypt(encrypted)
    except InvalidToken as error:
        raise UnreadableSecretError("This was encrypted with another key") from error


@lru_cache(maxsize=2)
def _fernet(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(key.strip()) for key in keys])

"""Encryption of secrets at rest (Fernet), under encryption keys that can be rotated.

Knows the encryption keys. Must never log, return or raise anything that carries a secret.
"""

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
    """Return the secret, whichever of the encryption keys it was encrypted with. Raises UnreadableSecretError."""
    try:
        return _fernet(tuple(settings.ENCRYPTION_KEYS)).decrypt(encrypted)
    except InvalidToken as error:
        raise UnreadableSecretError("This was sealed with another encryption key") from error


@lru_cache(maxsize=2)
def _fernet(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(key.strip()) for key in keys])

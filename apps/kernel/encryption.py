"""Sealing: how what must not be stored in clear is stored, under keys that can be exchanged.

Knows the encryption keys. Must never log, return or raise anything that carries what was sealed.
"""

from __future__ import annotations

from functools import lru_cache

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings


class UnreadableSecretError(Exception):
    """Something sealed that none of the encryption keys opens."""


def encrypt(secret: bytes) -> bytes:
    """Return the secret sealed with the newest encryption key."""
    return _fernet(tuple(settings.ENCRYPTION_KEYS)).encrypt(secret)


def decrypt(sealed: bytes) -> bytes:
    """Return the secret, whichever of the encryption keys it was sealed with. Raises UnreadableSecretError."""
    try:
        return _fernet(tuple(settings.ENCRYPTION_KEYS)).decrypt(sealed)
    except InvalidToken as error:
        raise UnreadableSecretError("This was sealed with another encryption key") from error


@lru_cache(maxsize=2)
def _fernet(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(key.strip()) for key in keys])

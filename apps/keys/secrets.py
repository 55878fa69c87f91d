"""Secrets: how API keys are made and recognized, how provider credentials are sealed and opened.

Knows the pepper and the encryption keys. Must never log, return or raise anything that carries a secret.
"""

from __future__ import annotations

import hmac
import secrets
import string
from functools import lru_cache

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

LIVE_PREFIX, DEVELOPMENT_PREFIX = "gw_live_", "gw_dev_"
_ALPHABET = string.digits + string.ascii_letters
_RANDOM_LENGTH = 40


class UnreadableSecretError(Exception):
    """A sealed credential that none of the encryption keys opens."""


def prefix() -> str:
    """Return what every API key made here begins with."""
    return DEVELOPMENT_PREFIX if settings.DEVELOPMENT else LIVE_PREFIX


def new_token() -> str:
    """Return a new API key: the prefix and 40 random characters, some 238 bits."""
    return prefix() + "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM_LENGTH))


def is_api_key(token: str) -> bool:
    """Tell an API key from other kinds of token by how it begins."""
    return token.startswith((LIVE_PREFIX, DEVELOPMENT_PREFIX))


def digest_of(token: str) -> bytes:
    """Return what is stored of an API key, and looked up by: HMAC-SHA-256 under the pepper."""
    return hmac.digest(settings.API_KEY_PEPPER.encode(), token.encode(), "sha256")


def encrypt(secret: str) -> bytes:
    """Return the secret sealed with the newest encryption key."""
    return _box(tuple(settings.ENCRYPTION_KEYS)).encrypt(secret.encode())


def decrypt(sealed: bytes) -> str:
    """Return the secret, whichever of the encryption keys it was sealed with. Raises UnreadableSecretError."""
    try:
        return _box(tuple(settings.ENCRYPTION_KEYS)).decrypt(bytes(sealed)).decode()
    except InvalidToken as error:
        raise UnreadableSecretError("This credential was sealed with another encryption key") from error


def reencrypt(sealed: bytes) -> bytes:
    """Return the same secret sealed with the newest encryption key. Raises UnreadableSecretError."""
    return encrypt(decrypt(sealed))


@lru_cache(maxsize=2)
def _box(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(key.strip()) for key in keys])

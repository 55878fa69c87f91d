"""Secrets: creating, hashing and finding API keys, and encrypting provider credentials.

Secrets never appear in logs or exceptions.
"""

from __future__ import annotations

import re

from django.conf import settings
from django.db.models import Q

from apps.kernel.secrets.encryption import UnreadableSecretError, decrypt, digest_of, encrypt, random_token

__all__ = [
    "UnreadableSecretError",
    "decrypt_credential",
    "digest_of",
    "encrypt_credential",
    "is_api_key",
    "last_four_of",
    "new_token",
    "prefix",
    "reencrypt_credential",
]

LIVE_PREFIX, DEVELOPMENT_PREFIX = "gw_live_", "gw_dev_"
# Characters; of a shorter credential, the last four would reveal too much.
SHORTEST_SHOWN = 12


def prefix() -> str:
    """Return the prefix of every API key."""
    return DEVELOPMENT_PREFIX if settings.DEVELOPMENT else LIVE_PREFIX


def new_token() -> str:
    """Return a new API key: the prefix and 40 random characters, about 238 bits."""
    return random_token(prefix())


def is_api_key(token: str) -> bool:
    """Return whether a token is an API key, by its prefix."""
    return token.startswith((LIVE_PREFIX, DEVELOPMENT_PREFIX))


def last_four_of(credential: str) -> str:
    """Return the displayable last characters of a credential; none if it is short."""
    return credential[-4:] if len(credential) >= SHORTEST_SHOWN else ""


def encrypt_credential(secret: str) -> bytes:
    """Return the secret encrypted with the newest encryption key."""
    return encrypt(secret.encode())


def decrypt_credential(encrypted: bytes) -> str:
    """Return the decrypted secret, with any of the encryption keys. Raises UnreadableSecretError."""
    return decrypt(bytes(encrypted)).decode()


def reencrypt_credential(encrypted: bytes) -> bytes:
    """Return the same secret encrypted with the newest encryption key. Raises UnreadableSecretError."""
    return encrypt_credential(decrypt_credential(encrypted))


_MASKED = re.compile(rf"({LIVE_PREFIX}|{DEVELOPMENT_PREFIX})(?:\.\.\.|\N{{HORIZONTAL ELLIPSIS}})([0-9A-Za-z]{{4}})")


def quoted_key(text: str) -> Q | None:
    """Return a query for the keys in a text, whole or masked; None if it is not a key."""
    masked = _MASKED.fullmatch(text)
    if masked is not None:
        return Q(prefix=masked[1], last_four=masked[2])
    return Q(digest=digest_of(text)) if is_api_key(text) else None

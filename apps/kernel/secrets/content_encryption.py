"""Content encryption at rest (AES-256-GCM): prompts and answers in a store.

Each text has its own key, derived from an encryption key and a random salt, so that no key is overused. Keys rotate as
for provider credentials: the newest encrypts, all decrypt. The name of a text is authenticated with it, so it cannot be
decrypted under another name. Content never appears in logs or exceptions.
"""

from __future__ import annotations

import hmac
import os
from base64 import b64decode, b64encode, urlsafe_b64decode
from binascii import Error as NotBase64Error
from functools import lru_cache
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from apps.kernel.concurrency.cached_setting import CachedSetting
from apps.kernel.secrets.encryption import UnreadableSecretError

_KEYS: Final = CachedSetting("ENCRYPTION_KEYS")
# Header of each text: version of the format, and the id of the key.
_VERSION: Final = b"e1"
_ID_BYTES: Final = 4
_SALT_BYTES: Final = 16
_HEAD_BYTES: Final = len(_VERSION) + _ID_BYTES + _SALT_BYTES
_PURPOSE: Final = b"content at rest"
# A key encrypts only one text, so the nonce can be constant.
_NONCE: Final = bytes(12)


def encrypt_content(content: bytes, name: str) -> bytes:
    """Return the content encrypted with the newest key, as ASCII; `name` is its key in the store."""
    identifier, key = _keys(tuple(_KEYS.value))[0]
    salt = os.urandom(_SALT_BYTES)
    return b64encode(_VERSION + identifier + salt + _cipher(key, salt).encrypt(_NONCE, content, name.encode()))


def decrypt_content(encrypted: bytes | str, name: str) -> bytes:
    """Return the content. Raises UnreadableSecretError if no key decrypts it, or if it was stored under another
    name."""
    try:
        data = b64decode(encrypted, validate=True)
    except (NotBase64Error, ValueError):
        raise _unreadable() from None
    identifier, salt = data[len(_VERSION) : len(_VERSION) + _ID_BYTES], data[_HEAD_BYTES - _SALT_BYTES : _HEAD_BYTES]
    if data.startswith(_VERSION) and len(data) > _HEAD_BYTES:
        for known, key in _keys(tuple(_KEYS.value)):
            if known == identifier:
                try:
                    return _cipher(key, salt).decrypt(_NONCE, data[_HEAD_BYTES:], name.encode())
                except InvalidTag:
                    break
    raise _unreadable()


def keyed_digest(content: bytes) -> str:
    """Return a digest of content that cannot be guessed without the key, unlike SHA-256."""
    _, key = _keys(tuple(_KEYS.value))[0]
    return hmac.digest(key, content, "sha256").hex()


def is_keyed_digest(content: bytes, digest: str) -> bool:
    """Return whether a digest matches the content with any of the keys, in constant time."""
    known = [hmac.digest(key, content, "sha256").hex() for _, key in _keys(tuple(_KEYS.value))]
    return any(hmac.compare_digest(one, digest) for one in known)


def _cipher(key: bytes, salt: bytes) -> AESGCM:
    return AESGCM(hmac.digest(key, salt, "sha256"))


@lru_cache(maxsize=2)
def _keys(written: tuple[str, ...]) -> list[tuple[bytes, bytes]]:
    """Return each key's id, and the key derived for this purpose, which is separate from Fernet's."""
    raw = [urlsafe_b64decode(one.strip()) for one in written]
    return [(sha256(b"name" + one).digest()[:_ID_BYTES], hmac.digest(one, _PURPOSE, "sha256")) for one in raw]


def _unreadable() -> UnreadableSecretError:
    return UnreadableSecretError("This was encrypted with another key, or for another place")

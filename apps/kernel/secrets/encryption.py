"""Encryption at rest with keys that can be rotated: secrets (Fernet), content encryption (AES-256-GCM), encrypted JSON;
and the tokens of keys that the gateway makes: random, with a prefix that tells what they are, and stored as digests.

Each text has its own key, derived from an encryption key and a random salt, so that no key is overused. The newest key
encrypts, all decrypt. The name of a text is authenticated with it, so it cannot be decrypted under another name.
Secrets and content never appear in logs or exceptions. Values of JSON are compressed first, and encrypted for one place
in one project: with the name of their row and column, so that rows cannot be exchanged.
"""

from __future__ import annotations

import hmac
import os
import secrets
import string
import zlib
from base64 import b64decode, b64encode, urlsafe_b64decode
from binascii import Error as NotBase64Error
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from apps.kernel.concurrency.cached_setting import CachedSetting
from apps.kernel.concurrency.native_thread_pool import offload


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


@dataclass(frozen=True, slots=True)
class Rotated:
    """The number of re-encrypted secrets, and the ids of rows whose secrets no key decrypts."""

    count: int
    unreadable: list[str]


def reencrypt_rows(rows: QuerySet[Any], field: str, reencrypt: Callable[[bytes], bytes]) -> Rotated:
    """Re-encrypt a field of every row, each row in its own transaction, so that locks are short.

    `reencrypt` raises UnreadableSecretError if no key decrypts a secret; such a row stays unchanged.
    """
    count, unreadable = 0, list[str]()
    for identifier in rows.order_by("id").values_list("id", flat=True):
        with transaction.atomic():
            row = rows.select_for_update(no_key=True).filter(pk=identifier).first()
            if row is None:
                continue
            try:
                setattr(row, field, reencrypt(bytes(getattr(row, field))))
            except UnreadableSecretError:
                unreadable.append(str(identifier))
                continue
            row.save(update_fields=[field])
            count += 1
    return Rotated(count, unreadable)


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


# Text shrinks to a third at the fastest level, and encrypted it could not be compressed later.
_LEVEL = 1
# How many times as long it is once it is open, about.
_OPENS_TO = 4


def encrypt_json(value: Any, project_id: UUID, place: str) -> str:
    """Return the value as text that says nothing without an encryption key; `place` names the row and column."""
    return encrypt_bytes(msgspec.json.encode(value), project_id, place)


def encrypt_bytes(data: bytes, project_id: UUID, place: str) -> str:
    """Return JSON's bytes, or any others, encrypted as `encrypt_json` does."""
    return offload(len(data), partial(_encrypt, data, f"{project_id}:{place}")).decode()


def decrypt_json(text: str | bytes, project_id: UUID, place: str) -> Any:
    """Return the value. Raises UnreadableSecretError when no key opens it, or it was encrypted for another place."""
    return offload(_OPENS_TO * len(text), partial(_open_value, text, f"{project_id}:{place}"))


def decrypt_bytes(text: str | bytes, project_id: UUID, place: str) -> bytes:
    """Return the bytes of what `encrypt_bytes` made. Raises UnreadableSecretError as `decrypt_json` does."""
    return offload(_OPENS_TO * len(text), partial(_open, text, f"{project_id}:{place}"))


def _encrypt(data: bytes, name: str) -> bytes:
    return encrypt_content(zlib.compress(data, _LEVEL), name)


def _open_value(text: str | bytes, name: str) -> Any:
    return msgspec.json.decode(_open(text, name))


def _open(text: str | bytes, name: str) -> bytes:
    # Only a process of this gateway can have made it: its size was bounded then.
    return zlib.decompress(decrypt_content(text, name))


_ALPHABET: Final = string.digits + string.ascii_letters
_RANDOM_LENGTH: Final = 40


def random_token(prefix: str) -> str:
    """Return a new token: the prefix and 40 random characters, about 238 bits."""
    return prefix + "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM_LENGTH))


def digest_of(token: str) -> bytes:
    """Return the stored digest of a token: HMAC-SHA-256 with the pepper."""
    return hmac.digest(settings.API_KEY_PEPPER.encode(), token.encode(), "sha256")

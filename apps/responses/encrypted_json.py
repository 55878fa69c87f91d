"""Encrypted JSON: values compressed and encrypted (`secrets/encryption.py`) for one place in one project.

A value can only be decrypted with the name of its own row and column, so that rows cannot be exchanged.
"""

from __future__ import annotations

import zlib
from functools import partial
from typing import Any
from uuid import UUID

import msgspec

from apps.kernel.concurrency.native_thread_pool import offload
from apps.kernel.secrets.encryption import decrypt_content, encrypt_content

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

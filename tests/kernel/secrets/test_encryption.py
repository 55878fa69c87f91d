"""Content at rest: encrypted with the newest key, read with any, and only under the name it was kept by."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import pytest
from cryptography.fernet import Fernet

from apps.kernel.secrets.encryption import UnreadableSecretError, decrypt_content, encrypt_content, keyed_digest

OLD, NEW = Fernet.generate_key().decode(), Fernet.generate_key().decode()
CONTENT = b'[["TextDelta",{"text":"what nobody else may read"}]]'


def test_what_is_kept_says_nothing_of_the_content() -> None:
    kept = encrypt_content(CONTENT, "answer:1")
    assert CONTENT not in kept
    assert b"nobody" not in b64decode(kept)
    assert decrypt_content(kept.decode(), "answer:1") == CONTENT
    assert encrypt_content(CONTENT, "answer:1") != kept


def test_it_opens_under_its_own_name_alone() -> None:
    kept = encrypt_content(CONTENT, "answer:1")
    with pytest.raises(UnreadableSecretError):
        decrypt_content(kept, "answer:2")


def test_keys_are_exchanged_while_content_lies(settings: Any) -> None:
    settings.ENCRYPTION_KEYS = [OLD]
    kept = encrypt_content(CONTENT, "a")
    settings.ENCRYPTION_KEYS = [NEW, OLD]
    assert decrypt_content(kept, "a") == CONTENT
    newer = encrypt_content(CONTENT, "a")
    settings.ENCRYPTION_KEYS = [NEW]
    assert decrypt_content(newer, "a") == CONTENT
    with pytest.raises(UnreadableSecretError):
        decrypt_content(kept, "a")


@pytest.mark.parametrize("place", [0, 3, 8, 25, -1])
def test_what_was_changed_does_not_open(place: int) -> None:
    from base64 import b64encode

    data = bytearray(b64decode(encrypt_content(CONTENT, "a")))
    data[place] ^= 1
    with pytest.raises(UnreadableSecretError):
        decrypt_content(b64encode(bytes(data)), "a")


@pytest.mark.parametrize("kept", ["", "x", "[]", "e1", '[["TextDelta",{}]]', "ZTE=", b"\xff"])
def test_what_another_version_kept_is_unreadable(kept: Any) -> None:
    with pytest.raises(UnreadableSecretError):
        decrypt_content(kept, "a")


def test_a_digest_cannot_be_guessed_without_the_key(settings: Any) -> None:
    settings.ENCRYPTION_KEYS = [OLD]
    first = keyed_digest(b"a question")
    assert keyed_digest(b"a question") == first
    settings.ENCRYPTION_KEYS = [NEW]
    assert keyed_digest(b"a question") != first

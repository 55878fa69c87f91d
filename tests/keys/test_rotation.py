"""`manage.py rotate_provider_keys`."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core.management import CommandError, call_command

from apps.kernel import generation
from apps.keys.models import ProviderKey
from apps.keys.secrets import decrypt_credential, encrypt_credential
from tests.world import World


def add(world: World, sealed: bytes, **fields: Any) -> ProviderKey:
    """Create a provider key of Acme."""
    return ProviderKey.objects.create(organization=world.acme, provider="openai", encrypted_token=sealed, **fields)


def rotate() -> str:
    """Run the command and return what it says."""
    said = StringIO()
    call_command("rotate_provider_keys", stdout=said)
    return said.getvalue()


def test_afterwards_the_newest_key_opens_everything(
    world: World, settings: Any, django_capture_on_commit_callbacks: Any
) -> None:
    old, new = (Fernet.generate_key().decode() for _ in range(2))
    settings.ENCRYPTION_KEYS = [old]
    first, second = add(world, encrypt_credential("first")), add(world, encrypt_credential("second"), status="inactive")
    gone = add(world, b"", status=ProviderKey.Status.DELETED)
    scope = generation.organization(world.acme.id)
    word = generation.read_generation_token(scope)
    settings.ENCRYPTION_KEYS = [new, old]
    with django_capture_on_commit_callbacks(execute=True):
        assert rotate() == "2 provider keys are sealed with the newest encryption key\n"
    settings.ENCRYPTION_KEYS = [new]
    for row, secret in ((first, "first"), (second, "second")):
        row.refresh_from_db()
        assert decrypt_credential(bytes(row.encrypted_token)) == secret
    gone.refresh_from_db()
    assert bytes(gone.encrypted_token) == b""
    assert generation.read_generation_token(scope) != word


def test_what_no_key_opens_is_named_and_left(world: World, settings: Any) -> None:
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    lost = add(world, encrypt_credential("lost"))
    sealed = bytes(lost.encrypted_token)
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    kept = add(world, encrypt_credential("kept"))
    with pytest.raises(CommandError) as raised:
        rotate()
    assert str(raised.value) == f"No encryption key opens these provider keys: {lost.id}"
    lost.refresh_from_db()
    kept.refresh_from_db()
    assert (bytes(lost.encrypted_token), decrypt_credential(bytes(kept.encrypted_token))) == (sealed, "kept")

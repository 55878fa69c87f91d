"""Provider keys (BYOK): actions on an organization's own credentials at providers, each in one transaction.

A credential is tested before it is stored, encrypted, and sent only to allowed addresses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction

from apps.kernel.errors import Forbidden, InvalidRequest, NotFound
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.kernel.secrets.encryption import Rotated, reencrypt_rows
from apps.keys import credential_check
from apps.keys.access import NO_PROVIDER_KEY
from apps.keys.models import ProviderKey
from apps.keys.secrets import (
    UnreadableSecretError,
    decrypt_credential,
    encrypt_credential,
    last_four_of,
    reencrypt_credential,
)
from apps.keys.ssrf_guard import SafeAddress, check_url_field
from apps.organizations.access import NO_ORGANIZATION
from apps.organizations.journal import audit
from apps.organizations.models import Organization
from apps.organizations.outside_calls import outside_call
from apps.organizations.plans import limits_of
from apps.organizations.row_locks import lock_row

CUSTOM = "custom"
# Keys of one organization; a policy carries them all.
MAX_KEYS = 100
FindProvider = Callable[[str], credential_check.ProviderEndpoint | None]


@dataclass(frozen=True, slots=True)
class NewProviderKey:
    """A new credential; `provider_name` and `base_url` are those of a custom provider."""

    provider: str
    token: str = field(repr=False)
    provider_name: str = ""
    base_url: str = ""


def check_provider_key(
    *, organization: Organization, given: NewProviderKey, find_provider: FindProvider, live: bool
) -> NewProviderKey:
    """Validate a new credential, with a test at its provider if `live`, and return it for storing.

    Raises Forbidden if the plan has no provider keys, InvalidRequest for an unknown provider, a forbidden address, and
    with the provider's error if it refuses the credential. Takes as long as the provider does.
    """
    _require_plan(organization)
    address = _checked(organization.id, given, find_provider, live=live)
    return replace(given, base_url=address.url if address else "")


def create_provider_key(*, organization: Organization, checked: NewProviderKey) -> ProviderKey:
    """Store a validated credential, encrypted.

    Raises InvalidRequest for a name in use, or at the limit of keys; NotFound if the organization was deleted
    meanwhile.
    """
    try:
        with transaction.atomic():
            # The lock serializes concurrent creation and deletion of the organization.
            lock_row(organization, NO_ORGANIZATION)
            living = ProviderKey.objects.filter(organization=organization).exclude(status=ProviderKey.Status.DELETED)
            if living.count() >= MAX_KEYS:
                raise InvalidRequest(f"Maximum {MAX_KEYS} provider keys per organization", code="provider_key_limit")
            token = checked.token
            key = ProviderKey.objects.create(
                organization=organization,
                provider=checked.provider,
                provider_name=checked.provider_name,
                base_url=checked.base_url,
                encrypted_token=encrypt_credential(token),
                last_four=last_four_of(token),
            )
            _record(
                "create", key, {"provider": key.provider, "providerName": key.provider_name, "baseUrl": key.base_url}
            )
            return key
    except IntegrityError as error:
        raise InvalidFields([Issue("providerName", "Another provider key has this name")]) from error


@transaction.atomic
def change_provider_key(*, key: ProviderKey, status: str) -> ProviderKey:
    """Switch a provider key on or off. Raises Forbidden as creating does, NotFound if it was deleted meanwhile."""
    if status == ProviderKey.Status.ACTIVE:
        _require_plan(key.organization)
    row = lock_row(key, NO_PROVIDER_KEY)
    _record("update", row, audit.changes_of(row, {"status": status}))
    row.status = status
    row.save(update_fields=["status", "updated_at"])
    return row


@transaction.atomic
def delete_provider_key(*, key: ProviderKey) -> None:
    """Delete a provider key and erase the credential. Raises NotFound if it already is deleted."""
    row = lock_row(key, NO_PROVIDER_KEY)
    _record("delete", row)
    row.status, row.encrypted_token = ProviderKey.Status.DELETED, b""
    row.save(update_fields=["status", "encrypted_token", "updated_at"])


def recheck_provider_key(*, key: ProviderKey, find_provider: FindProvider) -> None:
    """Test a key's credential at its provider; nothing changes, and nothing is charged.

    Raises InvalidRequest with the provider's error if it refuses, NotFound for a deleted key.
    """
    if key.status == ProviderKey.Status.DELETED:
        raise NotFound(NO_PROVIDER_KEY)
    try:
        token = decrypt_credential(bytes(key.encrypted_token))
    except UnreadableSecretError as error:
        raise InvalidRequest("No key in ENCRYPTION_KEYS decrypts this credential") from error
    given = NewProviderKey(key.provider, token, key.provider_name, key.base_url)
    _checked(key.organization_id, given, find_provider, live=True)


def rotate() -> Rotated:
    """Encrypt every credential with the newest encryption key, so that older ones can be removed."""
    living = ProviderKey.objects.exclude(status=ProviderKey.Status.DELETED)
    return reencrypt_rows(living, "encrypted_token", reencrypt_credential)


def _checked(
    organization_id: UUID, given: NewProviderKey, find_provider: FindProvider, *, live: bool
) -> SafeAddress | None:
    """Return the address of a custom provider; None for one of the catalog. Raises InvalidRequest."""
    if given.provider == CUSTOM:
        if {"?", "#"} & set(given.base_url):
            raise InvalidFields([Issue("baseUrl", "Must be a URL without query or fragment")])
        with outside_call(organization_id):
            address = check_url_field(given.base_url.rstrip("/"), "baseUrl", organization_id)
            if live:
                credential_check.check_at_address(address, given.token)
        return address
    provider = find_provider(given.provider)
    if provider is None:
        raise InvalidFields([Issue("provider", "There is no such provider")])
    if live:
        with outside_call(organization_id):
            credential_check.check_at_provider(provider, given.token)
    return None


def _require_plan(organization: Organization) -> None:
    if not limits_of(organization.plan).provider_keys:
        raise Forbidden("Provider keys require a pro or enterprise plan")


def _record(verb: str, key: ProviderKey, details: dict[str, Any] | None = None) -> None:
    audit.record(f"provider_key.{verb}", organization_id=key.organization_id, resource=key, details=details)

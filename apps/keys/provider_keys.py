"""Provider keys (BYOK): actions on an organization's own credentials at providers, each in one transaction.

A credential is tested before it is stored, encrypted, and sent only to allowed addresses.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any
from uuid import UUID

from django.db import transaction

from apps.kernel.errors import Forbidden, InvalidRequest, NotFound
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.kernel.secrets.reencryption import Rotated
from apps.keys import credential_check
from apps.keys.access import PROVIDER_KEYS
from apps.keys.models import ProviderKey
from apps.keys.secrets import (
    UnreadableSecretError,
    decrypt_credential,
    encrypt_credential,
    last_four_of,
    reencrypt_credential,
)
from apps.keys.ssrf_guard import SafeAddress, check_url_field
from apps.organizations.app_hooks import find_hook_modules
from apps.organizations.journal import audit
from apps.organizations.models import Organization
from apps.organizations.outside_calls import outside_call
from apps.organizations.plans import limits_of

CUSTOM = "custom"
# Keys of one organization; a policy carries them all.
MAX_KEYS = 100


@dataclass(frozen=True, slots=True)
class NewProviderKey:
    """A new credential; `provider_name` and `base_url` are those of a custom provider."""

    provider: str
    token: str = field(repr=False)
    provider_name: str = ""
    base_url: str = ""


def check_provider_key(*, organization: Organization, given: NewProviderKey, live: bool) -> NewProviderKey:
    """Validate a new credential, with a test at its provider if `live`, and return it for storing.

    Raises Forbidden if the plan has no provider keys, InvalidRequest for an unknown provider, a forbidden address, and
    with the provider's error if it refuses the credential. Takes as long as the provider does.
    """
    _require_plan(organization)
    address = _checked(organization.id, given, live=live)
    return replace(given, base_url=address.url if address else "")


def create_provider_key(*, organization: Organization, checked: NewProviderKey) -> ProviderKey:
    """Store a validated credential, encrypted.

    Raises InvalidFields for a name in use, InvalidRequest at the limit of keys; NotFound if the organization was
    deleted meanwhile.
    """
    columns: dict[str, Any] = {"provider": checked.provider, "provider_name": checked.provider_name}
    columns |= {"base_url": checked.base_url, "last_four": last_four_of(checked.token)}
    columns["encrypted_token"] = encrypt_credential(checked.token)
    return PROVIDER_KEYS.create(organization, columns, max_rows=MAX_KEYS)


@transaction.atomic
def change_provider_key(*, key: ProviderKey, status: str) -> ProviderKey:
    """Switch a provider key on or off. Raises Forbidden as creating does, NotFound if it was deleted meanwhile."""
    if status == ProviderKey.Status.ACTIVE:
        _require_plan(key.organization)
    row = PROVIDER_KEYS.lock(key)
    PROVIDER_KEYS.update(row, {"status": status}, audit.changes_of(row, {"status": status}))
    return row


def recheck_provider_key(*, key: ProviderKey) -> None:
    """Test a key's credential at its provider; nothing changes, and nothing is charged.

    Raises InvalidRequest with the provider's error if it refuses, NotFound for a deleted key.
    """
    if key.status == ProviderKey.Status.DELETED:
        raise NotFound(PROVIDER_KEYS.missing)
    try:
        token = decrypt_credential(bytes(key.encrypted_token))
    except UnreadableSecretError as error:
        raise InvalidRequest("No key in ENCRYPTION_KEYS decrypts this credential") from error
    given = NewProviderKey(key.provider, token, key.provider_name, key.base_url)
    _checked(key.organization_id, given, live=True)


def rotate() -> Rotated:
    """Encrypt every credential with the newest encryption key, so that older ones can be removed."""
    return PROVIDER_KEYS.rotate(reencrypt_credential)


def _checked(organization_id: UUID, given: NewProviderKey, *, live: bool) -> SafeAddress | None:
    """Return the address of a custom provider; None for one of the catalog. Raises InvalidRequest."""
    if given.provider == CUSTOM:
        if {"?", "#"} & set(given.base_url):
            raise InvalidFields([Issue("baseUrl", "Must be a URL without query or fragment")])
        with outside_call(organization_id):
            address = check_url_field(given.base_url.rstrip("/"), "baseUrl", organization_id)
            if live:
                credential_check.check_at_address(address, given.token)
        return address
    provider = _find_provider(given.provider)
    if provider is None:
        raise InvalidFields([Issue("provider", "There is no such provider")])
    if live:
        with outside_call(organization_id):
            credential_check.check_at_provider(provider, given.token)
    return None


def _find_provider(provider_id: str) -> credential_check.ProviderEndpoint | None:
    """Return a provider of the catalog, which this app cannot import; None if it does not exist."""
    [name] = find_hook_modules("provider_lookup", __name__)
    found: credential_check.ProviderEndpoint | None = import_module(name).find_provider(provider_id)
    return found


def _require_plan(organization: Organization) -> None:
    if not limits_of(organization.plan).provider_keys:
        raise Forbidden("Provider keys require a pro or enterprise plan")

"""Provider keys (BYOK): actions on an organization's own credentials at providers, each in one transaction.

A credential is tested before it is stored: one cheap call, the provider's list of models, shows whether it works. It is
stored encrypted, sent only to allowed addresses, never along a redirect, and never appears in messages.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Protocol
from uuid import UUID

import gevent
import requests
from django.db import transaction
from urllib3.exceptions import HTTPError

from apps.kernel.errors import Forbidden, InvalidRequest, NotFound
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.kernel.secrets.encryption import Rotated
from apps.kernel.secrets.redaction import redact
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
                check_at_address(address, given.token)
        return address
    provider = _find_provider(given.provider)
    if provider is None:
        raise InvalidFields([Issue("provider", "There is no such provider")])
    if live:
        with outside_call(organization_id):
            check_at_provider(provider, given.token)
    return None


def _find_provider(provider_id: str) -> ProviderEndpoint | None:
    """Return a provider of the catalog, which this app cannot import; None if it does not exist."""
    [name] = find_hook_modules("provider_lookup", __name__)
    found: ProviderEndpoint | None = import_module(name).find_provider(provider_id)
    return found


def _require_plan(organization: Organization) -> None:
    if not limits_of(organization.plan).provider_keys:
        raise Forbidden("Provider keys require a pro or enterprise plan")


# Timeouts in seconds: to connect, between two bytes, and in total.
TIMEOUT, TOTAL_TIMEOUT = (5.0, 10.0), 15.0
# Bytes of an answer that are read, and characters of it that are shown.
MAX_READ, MAX_TOLD = 8_192, 300
# Formats with a list of models at `/models`.
_LISTING = frozenset({"openai", "anthropic", "google"})
# No list of models, or not now: neither says anything about the credential.
_SAYS_NOTHING = frozenset({404, 405, 429})


class ProviderEndpoint(Protocol):
    """A provider of the catalog to check at; `auth` is `bearer`, or the name of the credential's header."""

    @property
    def dialect(self) -> str:
        """Its wire format."""

    @property
    def auth(self) -> str:
        """How a credential is sent."""

    @property
    def base_url(self) -> str:
        """The provider's address without a trailing slash."""


def check_at_provider(provider: ProviderEndpoint, token: str) -> None:
    """Check a credential at a provider of the catalog, if it lists models. Raises InvalidRequest with its error."""
    if provider.dialect not in _LISTING or "{" in provider.base_url:
        return
    headers = {"Authorization": f"Bearer {token}"} if provider.auth == "bearer" else {provider.auth: token}
    if provider.dialect == "anthropic":
        headers["anthropic-version"] = "2023-06-01"
    with requests.Session() as session:
        _ask(session, provider.base_url, headers, token)


def check_at_address(address: SafeAddress, token: str) -> None:
    """Check a credential at a tenant's own OpenAI-compatible address. Raises InvalidRequest with its error."""
    with address.session() as session:
        _ask(session, address.url, {"Authorization": f"Bearer {token}"}, token)


def _ask(session: requests.Session, base_url: str, headers: dict[str, str], token: str) -> None:
    try:
        with (
            gevent.Timeout(TOTAL_TIMEOUT, requests.Timeout()),
            session.get(
                f"{base_url}/models", headers=headers, timeout=TIMEOUT, allow_redirects=False, stream=True
            ) as response,
        ):
            status, words = response.status_code, _words_of(response, token)
    except (requests.RequestException, HTTPError) as error:
        raise _refused("the provider could not be reached") from error
    if status < 300 or status in _SAYS_NOTHING:
        return
    raise _refused(f"the provider answered {status}{f': {words}' if words else ''}")


def _words_of(response: requests.Response, token: str) -> str:
    """Return an answer's error message without the credential, shortened for display."""
    body = response.raw.read(MAX_READ, decode_content=True)
    try:
        said: Any = json.loads(body)
    except ValueError:
        said = body.decode("utf-8", "replace")
    if isinstance(said, dict):
        said = said.get("error", said.get("message", ""))
    if isinstance(said, dict):
        said = said.get("message", "")
    # Redact first: truncating could leave half of the credential.
    return " ".join(redact(str(said), [token]).split())[:MAX_TOLD]


def _refused(reason: str) -> InvalidRequest:
    return InvalidRequest(f"The provider key was not accepted: {reason}", code="provider_key_refused", param="token")

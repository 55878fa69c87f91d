"""Provider keys (BYOK): actions on an organization's own credentials at providers, each in one transaction.

A credential is tested before it is stored: one cheap call, the provider's list of models, shows whether it works. It is
stored encrypted, sent only to allowed addresses, never along a redirect, and never appears in messages.

The same call tells the models of an organization's own server, which are listed for its API keys.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from importlib import import_module
from typing import Any, Protocol
from uuid import UUID

import requests
from django.db import transaction
from django.db.models import F, Func, IntegerField, Sum, Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from apps.kernel.errors import ApiError, Forbidden, InvalidRequest, NotFound
from apps.kernel.money import plain
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.kernel.rest.serializers import camel
from apps.kernel.secrets.encryption import Rotated
from apps.keys.access import PROVIDER_KEYS
from apps.keys.model_discovery import ANY_SERVER, FoundModels, check_credential, complete_url, find_models
from apps.keys.models import ProviderKey
from apps.keys.own_models import MAX_MODELS, MAX_SETTINGS, OwnModel, OwnModels, read_models
from apps.keys.secrets import (
    UnreadableSecretError,
    decrypt_credential,
    encrypt_credential,
    last_four_of,
    reencrypt_credential,
)
from apps.keys.ssrf_guard import check_url_field
from apps.organizations.app_hooks import find_hook_modules
from apps.organizations.journal import audit
from apps.organizations.models import Organization
from apps.organizations.outside_calls import outside_call
from apps.organizations.plans import limits_of

CUSTOM = "custom"
# Keys of one organization; a policy carries them all.
MAX_KEYS = 100
# How often the schedule asks a server for its models; the keys and seconds of a run of it; characters of a problem.
REFRESHED_EVERY, MAX_REFRESHES, RUN, MAX_PROBLEM = timedelta(hours=6), 500, 240, 300
_PRICES = ("inputPrice", "outputPrice")


@dataclass(frozen=True, slots=True)
class NewProviderKey:
    """A new credential; all behind it is a custom provider's. `found` is None until its server was asked for models."""

    provider: str
    token: str = field(repr=False)
    provider_name: str = ""
    base_url: str = ""
    server: str = ANY_SERVER
    found: FoundModels | None = None


def check_provider_key(*, organization: Organization, given: NewProviderKey, live: bool) -> NewProviderKey:
    """Validate a new credential, with a test at its provider if `live`, and return it for storing.

    Raises Forbidden if the plan has no provider keys, InvalidRequest for an unknown provider, a forbidden address, and
    with the provider's error if it refuses the credential. Takes as long as the provider does.
    """
    _require_plan(organization)
    if given.provider == CUSTOM:
        given = replace(given, base_url=complete_url(given.base_url, given.server))
    return _checked(organization.id, given, live=live)


def create_provider_key(*, organization: Organization, checked: NewProviderKey) -> ProviderKey:
    """Store a validated credential, encrypted.

    Raises InvalidFields for a name in use, InvalidRequest at the limit of keys; NotFound if the organization was
    deleted meanwhile.
    """
    columns: dict[str, Any] = {"provider": checked.provider, "provider_name": checked.provider_name}
    columns |= {"base_url": checked.base_url, "last_four": last_four_of(checked.token), "server": checked.server}
    columns["encrypted_token"] = encrypt_credential(checked.token)
    if checked.found is not None:
        columns |= _found_columns(organization.id, None, checked.found)
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
    _ask_again(key)


def rotate() -> Rotated:
    """Encrypt every credential with the newest encryption key, so that older ones can be removed."""
    return PROVIDER_KEYS.rotate(reencrypt_credential)


def models_of(key: ProviderKey) -> OwnModels:
    """Return the models of a custom provider key that are listed or have settings."""
    return read_models(key.found_models, key.model_settings)


def refresh_models(*, key: ProviderKey, is_scheduled: bool = False) -> ProviderKey:
    """Ask an organization's own server for its models, and return the key with them; the audit log notes who asked.

    Raises InvalidRequest with the server's error if it refuses, NotFound for a deleted key or one of the catalog's
    providers. Models that it no longer lists go, their settings stay. Takes as long as the server does.
    """
    _require_custom(key)
    found = _ask_again(key)
    with transaction.atomic():
        row = PROVIDER_KEYS.lock(key)
        columns = _found_columns(row.organization_id, row, found or FoundModels([]))
        is_same = columns["found_models"] == row.found_models
        for name, value in columns.items():
            setattr(row, name, value)
        if is_same:
            # Not saved: policies stay as they are.
            ProviderKey.objects.filter(pk=row.pk).update(**columns)
        else:
            row.save(update_fields=[*columns, "updated_at"])
        if not is_scheduled:
            note = {"models": len(row.found_models)}
            audit.record("provider_key.refresh", organization_id=row.organization_id, resource=row, details=note)
    return row


def refresh_due_models() -> int:
    """Refresh the models of servers that are due, for the length of a run; return how many servers were asked.

    An error is noted at the key, where its organization sees it.
    """
    ends, count = time.monotonic() + RUN, 0
    for key_id, asked_at in find_due():
        if time.monotonic() > ends:
            break
        claim = ProviderKey.objects.filter(pk=key_id, models_asked_at=asked_at, status=ProviderKey.Status.ACTIVE)
        if claim.update(models_asked_at=timezone.now()):
            # Not another run's.
            count += 1
            try:
                refresh_models(key=ProviderKey.objects.get(pk=key_id), is_scheduled=True)
            except ApiError as error:
                ProviderKey.objects.filter(pk=key_id).update(models_problem=error.message[:MAX_PROBLEM])
    return count


def find_due() -> list[tuple[UUID, datetime | None]]:
    """Return the ids of keys whose models are to be refreshed, with the times when they last were.

    Organizations take turns; within one, the key that waits longest is first. A key that was stored without a test is
    not asked until a person has its models refreshed.
    """
    due = PROVIDER_KEYS.living.filter(
        provider=CUSTOM,
        status=ProviderKey.Status.ACTIVE,
        organization__status=Organization.Status.ACTIVE,
        models_asked_at__lt=timezone.now() - REFRESHED_EVERY,
    )
    turn = Window(RowNumber(), partition_by="organization_id", order_by="models_asked_at")
    turns = due.annotate(turn=turn).order_by("turn", "models_asked_at")
    return list(turns.values_list("id", "models_asked_at")[:MAX_REFRESHES])


@transaction.atomic
def change_model(*, key: ProviderKey, model: str, changes: Mapping[str, Any]) -> OwnModel:
    """Set a model's context and prices at a custom provider; None is unknown, and the last None forgets the model.

    `changes` are `context_length` (tokens), `input_price` and `output_price` (USD per million tokens). Raises
    InvalidFields for a price without the other, InvalidRequest at the limit of models with settings, NotFound for a
    key that was deleted meanwhile or is not custom.
    """
    row = PROVIDER_KEYS.lock(key)
    _require_custom(row)
    stored = {**row.model_settings.get(model, {}), **{camel(name): _stored(value) for name, value in changes.items()}}
    settings = {name: value for name, value in stored.items() if value is not None}
    lacking = [name for name in _PRICES if name not in settings]
    if len(lacking) == 1:
        raise InvalidFields([Issue(lacking[0], "Give both prices, or none; 0 is free")])
    every = {name: value for name, value in row.model_settings.items() if name != model}
    if settings:
        every[model] = settings
    if len(every) > MAX_SETTINGS:
        raise InvalidRequest(f"Maximum {MAX_SETTINGS} models with settings per provider key", code="own_model_limit")
    PROVIDER_KEYS.update(row, {"model_settings": every}, {"model": model, **settings})
    return models_of(row).get(model) or OwnModel(name=model, is_found=False)


def _stored(value: Any) -> Any:
    return plain(value) if isinstance(value, Decimal) else value


def _require_custom(key: ProviderKey) -> None:
    if key.status == ProviderKey.Status.DELETED or key.provider != CUSTOM:
        raise NotFound("Only a custom provider has models of its own")


def _found_columns(organization_id: UUID, row: ProviderKey | None, found: FoundModels) -> dict[str, Any]:
    """Return the columns of a server's models, as many as the organization may have."""
    lengths = Sum(Func(F("found_models"), function="jsonb_array_length", output_field=IntegerField()))
    others = PROVIDER_KEYS.living.filter(organization=organization_id)
    others = others if row is None else others.exclude(pk=row.pk)
    room = max(0, MAX_MODELS - (others.aggregate(count=lengths)["count"] or 0))
    problem = found.problem
    if len(found.models) > room:
        problem = f"{room} of its {len(found.models)} models are kept: an organization has at most {MAX_MODELS}"
    return {"found_models": found.models[:room], "models_problem": problem, "models_asked_at": timezone.now()}


def _ask_again(key: ProviderKey) -> FoundModels | None:
    """Test a stored credential; return the models of a custom provider. Raises InvalidRequest, NotFound."""
    if key.status == ProviderKey.Status.DELETED:
        raise NotFound(PROVIDER_KEYS.missing)
    try:
        token = decrypt_credential(bytes(key.encrypted_token))
    except UnreadableSecretError as error:
        raise InvalidRequest("No key in ENCRYPTION_KEYS decrypts this credential") from error
    given = NewProviderKey(key.provider, token, key.provider_name, key.base_url, key.server)
    return _checked(key.organization_id, given, live=True).found


def _checked(organization_id: UUID, given: NewProviderKey, *, live: bool) -> NewProviderKey:
    """Return a credential with the models of a custom provider that was asked. Raises InvalidRequest."""
    if given.provider == CUSTOM:
        if {"?", "#"} & set(given.base_url):
            raise InvalidFields([Issue("baseUrl", "Must be a URL without query or fragment")])
        with outside_call(organization_id):
            address = check_url_field(given.base_url.rstrip("/"), "baseUrl", organization_id)
            found = find_models(address, given.token, given.server) if live else None
        return replace(given, base_url=address.url, found=found)
    provider = _find_provider(given.provider)
    if provider is None:
        raise InvalidFields([Issue("provider", "There is no such provider")])
    if live:
        with outside_call(organization_id):
            check_at_provider(provider, given.token)
    return replace(given, base_url="")


def _find_provider(provider_id: str) -> ProviderEndpoint | None:
    """Return a provider of the catalog, which this app cannot import; None if it does not exist."""
    [name] = find_hook_modules("provider_lookup", __name__)
    found: ProviderEndpoint | None = import_module(name).find_provider(provider_id)
    return found


def _require_plan(organization: Organization) -> None:
    if not limits_of(organization.plan).provider_keys:
        raise Forbidden("Provider keys require a pro or enterprise plan")


# Formats with a list of models at `/models`.
_LISTING = frozenset({"openai", "anthropic", "google"})


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
        check_credential(session, provider.base_url, headers, token)

"""Provider keys (BYOK): actions on an organization's own credentials at providers, each in one transaction.

A credential is tested before it is stored: one cheap call, the provider's list of models, shows whether it works. It is
stored encrypted, sent only to allowed addresses, never along a redirect, and never appears in messages.

The same call tells the models of an organization's own server, which are listed for its API keys.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Protocol
from uuid import UUID

import requests
from django.conf import settings
from django.db import transaction
from django.db.models import F, Func, IntegerField, Sum, Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from apps.kernel.errors import ApiError, Forbidden, InvalidRequest, NotFound
from apps.kernel.money import plain
from apps.kernel.rest.envelopes import InvalidFields, Issue, camel
from apps.kernel.secrets.encryption import Rotated
from apps.keys.access import PROVIDER_KEYS
from apps.keys.model_discovery import (
    ANY_SERVER,
    FoundModels,
    check_address,
    check_credential,
    complete_url,
    find_models,
)
from apps.keys.model_probe import probe_model, stored
from apps.keys.models import ProviderKey
from apps.keys.own_models import (
    MAX_MODELS,
    MAX_PRICE,
    MAX_SETTINGS,
    OwnModel,
    OwnModels,
    average_use,
    mark_gone,
    name_replicas,
    read_models,
)
from apps.keys.secrets import (
    UnreadableSecretError,
    decrypt_credential,
    encrypt_credential,
    last_four_of,
    reencrypt_credential,
)
from apps.keys.ssrf_guard import check_url_field
from apps.organizations.app_hooks import find_hooks
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
# The days whose use shows how many tokens share an hour.
OBSERVED = timedelta(days=7)
# Models of one server whose probes are kept: the latest.
MAX_PROBES = 200


@dataclass(frozen=True, slots=True)
class NewProviderKey:
    """A new credential; all behind it is a custom provider's. `found` is None until its server was asked for models."""

    provider: str
    token: str = field(repr=False)
    provider_name: str = ""
    base_url: str = ""
    server: str = ANY_SERVER
    # Further addresses with the same models.
    replicas: tuple[str, ...] = ()
    found: FoundModels | None = None


def check_provider_key(*, organization: Organization, given: NewProviderKey, live: bool) -> NewProviderKey:
    """Validate a new credential, with a test at its provider if `live`, and return it for storing.

    Raises Forbidden if the plan has no provider keys, InvalidRequest for an unknown provider, a forbidden address, and
    with the provider's error if it refuses the credential. Takes as long as the provider does.
    """
    _require_plan(organization, given.provider)
    if given.provider == CUSTOM:
        further = tuple(complete_url(one, given.server) for one in given.replicas)
        given = replace(given, base_url=complete_url(given.base_url, given.server), replicas=further)
    return _checked(organization.id, given, live=live)


def create_provider_key(*, organization: Organization, checked: NewProviderKey) -> ProviderKey:
    """Store a validated credential, encrypted.

    Raises InvalidFields for a name in use, InvalidRequest at the limit of keys; NotFound if the organization was
    deleted meanwhile.
    """
    columns: dict[str, Any] = {"provider": checked.provider, "provider_name": checked.provider_name}
    columns |= {"base_url": checked.base_url, "last_four": last_four_of(checked.token), "server": checked.server}
    columns["encrypted_token"] = encrypt_credential(checked.token)
    columns["replicas"] = name_replicas([checked.base_url, *checked.replicas])
    if checked.found is not None:
        columns |= _found_columns(organization.id, None, checked.found)
    return PROVIDER_KEYS.create(organization, columns, max_rows=MAX_KEYS)


@transaction.atomic
def change_provider_key(*, key: ProviderKey, status: str) -> ProviderKey:
    """Switch a provider key on or off. Raises Forbidden as creating does, NotFound if it was deleted meanwhile."""
    if status == ProviderKey.Status.ACTIVE:
        _require_plan(key.organization, key.provider)
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
    return read_models(key.found_models, key.model_settings, key.model_probes, key.observed_use)


def refresh_models(*, key: ProviderKey, is_scheduled: bool = False) -> ProviderKey:
    """Ask an organization's own server for its models, and return the key with them; the audit log notes who asked.

    Raises InvalidRequest with the server's error if it refuses, NotFound for a deleted key or one of the catalog's
    providers. Models that it no longer lists are marked, their settings stay. Takes as long as the server does.
    """
    require_custom(key)
    found = _ask_again(key)
    with transaction.atomic():
        row = PROVIDER_KEYS.lock(key)
        columns = _found_columns(row.organization_id, row, found or FoundModels([]))
        is_same = (columns["found_models"], columns["observed_use"]) == (row.found_models, row.observed_use)
        for name, value in columns.items():
            setattr(row, name, value)
        if is_same:
            # Not saved: policies stay as they are.
            ProviderKey.objects.filter(pk=row.pk).update(**columns)
        else:
            row.save(update_fields=[*columns, "updated_at"])
        if not is_scheduled:
            note = {"models": len(row.found_models) - sum("goneAt" in one for one in row.found_models)}
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
    """Set a model's alias, context, prices and capabilities at a custom provider; None is unknown, and the last None
    forgets the model.

    `changes` are `alias`, `context_length` (tokens), `input_price` and `output_price` (USD per million tokens),
    `hourly_price` (USD) and `tokens_per_hour`, and `overrides` of capabilities. An hour without tokens is shared by
    those that the model's use shows. Raises InvalidFields for an alias in use, a price without the other, tokens
    without an hour or both kinds of prices, InvalidRequest at the limit of models with settings, NotFound for a key
    that was deleted meanwhile or is not custom.
    """
    row = PROVIDER_KEYS.lock(key)
    require_custom(row)
    current = row.model_settings.get(model, {})
    wanted = {**current, **{camel(name): _stored(value) for name, value in changes.items()}}
    chosen = {name: value for name, value in wanted.items() if value not in (None, {})}
    lacking = [name for name in _PRICES if name not in chosen]
    if len(lacking) == 1:
        raise InvalidFields([Issue(lacking[0], "Give both prices, or none; 0 is free")])
    hour, tokens = chosen.get("hourlyPrice"), chosen.get("tokensPerHour")
    if tokens and not hour:
        raise InvalidFields([Issue("hourlyPrice", "Give the price of the hour that these tokens share")])
    if hour and not lacking:
        raise InvalidFields([Issue("hourlyPrice", "Give prices per token or per hour, not both")])
    if hour and tokens and Decimal(hour) * 1_000_000 > MAX_PRICE * tokens:
        raise InvalidFields([Issue("tokensPerHour", f"A million tokens would cost more than {MAX_PRICE} USD")])
    every = {name: value for name, value in row.model_settings.items() if name != model}
    if alias := changes.get("alias"):
        _check_alias(row, alias, every)
    if chosen:
        every[model] = chosen
    if len(every) > MAX_SETTINGS:
        raise InvalidRequest(f"Maximum {MAX_SETTINGS} models with settings per provider key", code="own_model_limit")
    columns = {"model_settings": every, "observed_use": _observe(row, every)}
    PROVIDER_KEYS.update(row, columns, {"model": model, **chosen})
    return models_of(row).get(model) or OwnModel(name=model, is_found=False)


def _observe(row: ProviderKey, settings: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Return the tokens in an hour of the models that have a price of an hour, by the daily sums of their use."""
    priced = [name for name, chosen in settings.items() if "hourlyPrice" in chosen]
    if not priced:
        return {}
    # The log is in a higher layer.
    [find_daily_tokens] = find_hooks("find_daily_tokens")
    today, provider = datetime.now(UTC).date(), f"{CUSTOM}:{row.provider_name}"
    days = find_daily_tokens(row.organization_id, provider, today - OBSERVED, today)
    return average_use(((name.removeprefix(f"{provider}/"), day, sum_) for name, day, sum_ in days), priced, today)


def _check_alias(row: ProviderKey, alias: str, others: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise InvalidFields where another model of the organization has the alias."""
    rows = PROVIDER_KEYS.living.filter(organization=row.organization_id).exclude(pk=row.pk)
    stated = [*rows.values_list("model_settings", flat=True), others]
    if any(one.get("alias") == alias for models in stated for one in models.values()):
        raise InvalidFields([Issue("alias", "Another model has this alias")])


def find_by_alias(organization_id: UUID, alias: str) -> str:
    """Return the full name of the model of an organization's own servers that has an alias; empty where none has."""
    if not alias:
        return ""
    for row in PROVIDER_KEYS.living.filter(organization=organization_id, provider=CUSTOM):
        for name, chosen in row.model_settings.items():
            if chosen.get("alias") == alias:
                return f"{CUSTOM}:{row.provider_name}/{name}"
    return ""


def probe(*, key: ProviderKey, model: str) -> OwnModel:
    """Ask an organization's own server, by a few small requests, what a model can do; return the model with the result.

    Raises InvalidRequest with the server's error if it refuses or is not reached, NotFound for a deleted key or one of
    the catalog's providers. Takes as long as the server does.
    """
    require_custom(key)
    token = token_of(key)
    with outside_call(key.organization_id):
        address = check_url_field(key.base_url, "baseUrl", key.organization_id)
        result = stored(probe_model(address, token, model, timezone.now().isoformat(timespec="seconds")))
    with transaction.atomic():
        row = PROVIDER_KEYS.lock(key)
        others = {name: one for name, one in row.model_probes.items() if name != model}
        latest = sorted(others, key=lambda name: str(others[name]["at"]), reverse=True)[: MAX_PROBES - 1]
        row.model_probes = {**{name: others[name] for name in latest}, model: result}
        row.save(update_fields=["model_probes", "updated_at"])
        note = {"model": model, **result["results"]}
        audit.record("provider_key.probe", organization_id=row.organization_id, resource=row, details=note)
    return models_of(row)[model]


def _stored(value: Any) -> Any:
    return plain(value) if isinstance(value, Decimal) else value


def require_custom(key: ProviderKey) -> None:
    """Raise NotFound for a deleted key and for one of the catalog's providers."""
    if key.status == ProviderKey.Status.DELETED or key.provider != CUSTOM:
        raise NotFound("Only a custom provider has models of its own")


def _found_columns(organization_id: UUID, row: ProviderKey | None, found: FoundModels) -> dict[str, Any]:
    """Return the columns of a server's models, as many as the organization may have."""
    lengths = Sum(Func(F("found_models"), function="jsonb_array_length", output_field=IntegerField()))
    others = PROVIDER_KEYS.living.filter(organization=organization_id)
    others = others if row is None else others.exclude(pk=row.pk)
    room = max(0, MAX_MODELS - (others.aggregate(count=lengths)["count"] or 0))
    problem, asked_at = found.problem, timezone.now()
    before = [] if row is None else row.found_models
    # An answer that is no list says nothing of the models.
    is_list = bool(found.models) or not found.problem
    now = asked_at.isoformat(timespec="seconds")
    kept = mark_gone(found.models[:room], before, now)[:room] if is_list else before
    if len(found.models) > room:
        problem = f"{room} of its {len(found.models)} models are kept: an organization has at most {MAX_MODELS}"
    observed = {} if row is None else _observe(row, row.model_settings)
    columns = {"found_models": kept, "models_problem": problem, "models_asked_at": asked_at}
    return columns | {"observed_use": observed}


def _ask_again(key: ProviderKey) -> FoundModels | None:
    """Test a stored credential; return the models of a custom provider. Raises InvalidRequest, NotFound."""
    if key.status == ProviderKey.Status.DELETED:
        raise NotFound(PROVIDER_KEYS.missing)
    given = NewProviderKey(key.provider, token_of(key), key.provider_name, key.base_url, key.server)
    return _checked(key.organization_id, given, live=True).found


def token_of(key: ProviderKey) -> str:
    """Return the stored credential in clear. Raises InvalidRequest where no encryption key fits."""
    try:
        return decrypt_credential(bytes(key.encrypted_token))
    except UnreadableSecretError as error:
        raise InvalidRequest("No key in ENCRYPTION_KEYS decrypts this credential") from error


def _checked(organization_id: UUID, given: NewProviderKey, *, live: bool) -> NewProviderKey:
    """Return a credential with the models of a custom provider that was asked. Raises InvalidRequest."""
    if given.provider == CUSTOM:
        addresses = {"baseUrl": given.base_url.rstrip("/")}
        addresses |= {f"replicas[{at}]": one.rstrip("/") for at, one in enumerate(given.replicas)}
        for at, (field_name, url) in enumerate(addresses.items()):
            if {"?", "#"} & set(url):
                raise InvalidFields([Issue(field_name, "Must be a URL without query or fragment")])
            if url in list(addresses.values())[:at]:
                raise InvalidFields([Issue(field_name, "Another replica has this address")])
        with outside_call(organization_id):
            first, *further = [check_url_field(url, name, organization_id) for name, url in addresses.items()]
            found = find_models(first, given.token, given.server) if live else None
            for address in further if live else ():
                check_address(address, given.token)
        return replace(given, base_url=first.url, replicas=tuple(one.url for one in further), found=found)
    provider = _find_provider(given.provider)
    if provider is None:
        raise InvalidFields([Issue("provider", "There is no such provider")])
    if live:
        with outside_call(organization_id):
            check_at_provider(provider, given.token)
    return replace(given, base_url="")


def _find_provider(provider_id: str) -> ProviderEndpoint | None:
    """Return a provider of the catalog, which this app cannot import; None if it does not exist."""
    [find_provider] = find_hooks("find_provider")
    found: ProviderEndpoint | None = find_provider(provider_id)
    return found


def may_have_keys(organization: Organization, provider: str) -> bool:
    """Return whether an organization may have keys of a provider: its plan has them, or the operator allows servers of
    its own to all."""
    if provider == CUSTOM and settings.OWN_SERVERS_ON_FREE_PLAN:
        return True
    return limits_of(organization.plan).provider_keys


def _require_plan(organization: Organization, provider: str) -> None:
    if not may_have_keys(organization, provider):
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

"""Views of provider keys, `/keys/provider`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.kernel.rest.describe import Field, described
from apps.kernel.rest.serializers import DateTimeField, Nothing
from apps.keys import provider_keys
from apps.keys.access import PROVIDER_KEYS
from apps.keys.models import ProviderKey
from apps.keys.provider_keys import NewProviderKey
from apps.keys.serializers import (
    NewProviderKeyShape,
    OwnModelChangesShape,
    OwnModelShape,
    ProviderKeyChangesShape,
    ProviderKeyShape,
)
from apps.organizations.credentials.sessions import MemberEndpoint
from apps.organizations.integrations.endpoints import Create, Kind, ListEndpoint, LiveQuery, OneEndpoint, documented
from apps.organizations.models import Organization


def _check(organization: Organization, fields: Mapping[str, Any], *, live: bool) -> Create[ProviderKey]:
    names = ("provider", "token", "provider_name", "base_url", "server")
    given = NewProviderKey(**{name: fields[name] for name in names})
    checked = provider_keys.check_provider_key(organization=organization, given=given, live=live)
    return partial(provider_keys.create_provider_key, organization=organization, checked=checked)


def _change(key: ProviderKey, fields: Mapping[str, Any]) -> ProviderKey:
    return provider_keys.change_provider_key(key=key, status=fields["status"])


KIND = Kind(
    table=PROVIDER_KEYS,
    name="providerKey",
    plural="providerKeys",
    shape=ProviderKeyShape,
    new=NewProviderKeyShape,
    changes=ProviderKeyChangesShape,
    query=LiveQuery,
    check=_check,
    change=_change,
    changed=lambda key: f"Provider key status updated to {key.status}",
)


@documented(
    post="Add the organization's own credential for a provider (BYOK).",
    get="List an organization's provider keys, oldest first.",
)
class ProviderKeys(ListEndpoint):
    """`POST /keys/provider`, `GET /keys/provider`."""

    kind = KIND


@documented(patch="Activate or deactivate a provider key.", delete="Delete a provider key and erase its credential.")
class OneProviderKey(OneEndpoint):
    """`PATCH /keys/provider/{id}`, `DELETE /keys/provider/{id}`."""

    kind = KIND


def _listing() -> dict[str, Field]:
    return {
        "models": OwnModelShape(many=True),
        "askedAt": DateTimeField(allow_null=True),
        "problem": serializers.CharField(allow_null=True),
    }


class ProviderKeyModels(MemberEndpoint):
    """`GET`, `POST` and `PATCH /keys/provider/{id}/models`."""

    def prepare(self) -> None:
        """Ask the server outside of the transaction of the POST, so that nothing waits for it."""
        self.read(Nothing)
        self._key = provider_keys.refresh_models(key=self._access())

    @described(_listing(), refuses=(403, 404))
    def get(self, request: Request, key_id: str) -> Response:
        """List the models of a custom provider: those of its server, and those that have a context or prices set."""
        return self._answer(self._access())

    @described(_listing(), body=Nothing, refuses=(403, 404))
    def post(self, request: Request, key_id: str) -> Response:
        """Ask the server of a custom provider for its models again, and list them."""
        return self._answer(self._key)

    @described({"model": OwnModelShape()}, body=OwnModelChangesShape, refuses=(403, 404))
    def patch(self, request: Request, key_id: str) -> Response:
        """Set the context and the prices of a model of a custom provider."""
        fields = self.read(OwnModelChangesShape)
        changed = provider_keys.change_model(key=self._access(), model=fields.pop("model"), changes=fields)
        return Response({"model": OwnModelShape(changed).data})

    def _access(self) -> ProviderKey:
        return PROVIDER_KEYS.access(self.user, self.kwargs["key_id"])

    def _answer(self, key: ProviderKey) -> Response:
        models = OwnModelShape(list(provider_keys.models_of(key).values()), many=True).data
        asked = key.models_asked_at and DateTimeField().to_representation(key.models_asked_at)
        return Response({"models": models, "askedAt": asked, "problem": key.models_problem or None})

"""Views of provider keys, `/keys/provider`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.kernel.rest.endpoint import Field, described
from apps.kernel.rest.serializers import DateTimeField, Nothing
from apps.keys import provider_keys, replicas
from apps.keys.access import PROVIDER_KEYS
from apps.keys.models import ProviderKey
from apps.keys.provider_keys import NewProviderKey
from apps.keys.serializers import (
    NewProviderKeyShape,
    OwnModelChangesShape,
    OwnModelShape,
    ProbedModelShape,
    ProviderKeyChangesShape,
    ProviderKeyShape,
    ReplicaChangesShape,
    ReplicaShape,
    WantedReplicasShape,
)
from apps.organizations.credentials.sessions import MemberEndpoint
from apps.organizations.integrations.endpoints import Create, Kind, ListEndpoint, LiveQuery, OneEndpoint, documented
from apps.organizations.models import Organization


def _check(organization: Organization, fields: Mapping[str, Any], *, live: bool) -> Create[ProviderKey]:
    names = ("provider", "token", "provider_name", "base_url", "server", "replicas")
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
        """Set the context, prices and capabilities of a model of a custom provider."""
        fields = self.read(OwnModelChangesShape)
        changed = provider_keys.change_model(key=self._access(), model=fields.pop("model"), changes=fields)
        return Response({"model": OwnModelShape(changed).data})

    def _access(self) -> ProviderKey:
        return PROVIDER_KEYS.access(self.user, self.kwargs["key_id"])

    def _answer(self, key: ProviderKey) -> Response:
        models = OwnModelShape(list(provider_keys.models_of(key).values()), many=True).data
        asked = key.models_asked_at and DateTimeField().to_representation(key.models_asked_at)
        return Response({"models": models, "askedAt": asked, "problem": key.models_problem or None})


class ProviderKeyProbe(MemberEndpoint):
    """`POST /keys/provider/{id}/models/probe`."""

    def prepare(self) -> None:
        """Ask the server outside of the transaction of the POST."""
        fields = self.read(ProbedModelShape)
        key = PROVIDER_KEYS.access(self.user, self.kwargs["key_id"])
        self._model = provider_keys.probe(key=key, model=fields["model"])

    @described({"model": OwnModelShape()}, body=ProbedModelShape, refuses=(403, 404))
    def post(self, request: Request, key_id: str) -> Response:
        """Find out, by a few small requests to the server of a custom provider, what a model can do."""
        return Response({"model": OwnModelShape(self._model).data})


class ProviderKeyReplicas(MemberEndpoint):
    """`GET`, `PUT` and `PATCH /keys/provider/{id}/replicas`."""

    @described({"replicas": ReplicaShape(many=True)}, refuses=(403, 404))
    def get(self, request: Request, key_id: str) -> Response:
        """List the addresses of a custom provider with their states."""
        return self._answer(self._access())

    @described({"replicas": ReplicaShape(many=True)}, body=WantedReplicasShape, query=LiveQuery, refuses=(403, 404))
    def put(self, request: Request, key_id: str) -> Response:
        """Set the addresses of a custom provider: servers of the same models, which share the requests."""
        fields, query = self.read(WantedReplicasShape), self.read_query(LiveQuery)
        token = fields.get("token", "")
        return self._answer(
            replicas.set_replicas(key=self._access(), wanted=fields["replicas"], token=token, live=query["live"])
        )

    @described({"replicas": ReplicaShape(many=True)}, body=ReplicaChangesShape, refuses=(403, 404))
    def patch(self, request: Request, key_id: str) -> Response:
        """Drain an address of a custom provider, so that it gets no new requests, or end that."""
        fields = self.read(ReplicaChangesShape)
        return self._answer(replicas.drain_replica(key=self._access(), **fields))

    def _access(self) -> ProviderKey:
        return PROVIDER_KEYS.access(self.user, self.kwargs["key_id"])

    def _answer(self, key: ProviderKey) -> Response:
        return Response({"replicas": ReplicaShape(replicas.states_of(key), many=True).data})

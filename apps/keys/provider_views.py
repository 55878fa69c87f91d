"""`/keys/provider`: parse, act or query, present."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from apps.keys import provider_keys
from apps.keys.access import access_provider_key, access_provider_keys
from apps.keys.live_check import Provider
from apps.keys.provider_keys import FindProvider, NewProviderKey
from apps.keys.serializers import (
    NewProviderKeyQuery,
    NewProviderKeyShape,
    ProviderKeyChangesShape,
    ProviderKeyShape,
    ProviderKeysQuery,
)
from apps.organizations.access import access_organization
from apps.organizations.models import Role
from apps.organizations.sessions import MemberEndpoint


def _knows_none(provider_id: str) -> Provider | None:
    return None


class ProviderKeys(MemberEndpoint):
    """`POST /keys/provider`, `GET /keys/provider`."""

    # Finds a provider of the catalog, which this app cannot see: the map of paths says how.
    find_provider: FindProvider = staticmethod(_knows_none)

    def post(self, request: Request) -> Response:
        """Keep an organization's own credential at a provider."""
        fields = self.read(NewProviderKeyShape)
        organization, _ = access_organization(self.user, fields.pop("organization_id"), Role.ADMIN)
        created = provider_keys.create_provider_key(
            organization=organization,
            given=NewProviderKey(**fields),
            find_provider=self.find_provider,
            **self.read_query(NewProviderKeyQuery),
        )
        return Response({"providerKey": ProviderKeyShape(created).data})

    def get(self, request: Request) -> Response:
        """List an organization's provider keys, oldest first."""
        keys = access_provider_keys(self.user, **self.read_query(ProviderKeysQuery))
        return Response({"providerKeys": ProviderKeyShape(keys, many=True).data})


class OneProviderKey(MemberEndpoint):
    """`PATCH /keys/provider/{id}`, `DELETE /keys/provider/{id}`."""

    def patch(self, request: Request, key_id: str) -> Response:
        """Switch a provider key on or off."""
        key = access_provider_key(self.user, key_id)
        changed = provider_keys.change_provider_key(key=key, **self.read(ProviderKeyChangesShape))
        message = f"Provider key status updated to {changed.status}"
        return Response({"message": message, "providerKey": ProviderKeyShape(changed).data})

    def delete(self, request: Request, key_id: str) -> Response:
        """End a provider key, and erase the credential."""
        provider_keys.delete_provider_key(key=access_provider_key(self.user, key_id))
        return Response({"message": "Provider key deleted"})

"""Views of provider keys, `/keys/provider`: parse, act or query, present."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from apps.kernel.rest.describe import described, message_field
from apps.keys import provider_keys
from apps.keys.access import access_provider_key, access_provider_keys
from apps.keys.credential_check import ProviderEndpoint
from apps.keys.provider_keys import FindProvider, NewProviderKey
from apps.keys.serializers import (
    NewProviderKeyQuery,
    NewProviderKeyShape,
    ProviderKeyChangesShape,
    ProviderKeyShape,
    ProviderKeysQuery,
)
from apps.organizations.access import access_organization
from apps.organizations.credentials.sessions import MemberEndpoint
from apps.organizations.models import Role


def _knows_none(provider_id: str) -> ProviderEndpoint | None:
    return None


class ProviderKeys(MemberEndpoint):
    """`POST /keys/provider`, `GET /keys/provider`."""

    # Finds a provider of the catalog, which this app cannot see: the map of paths says how.
    find_provider: FindProvider = staticmethod(_knows_none)

    def prepare(self) -> None:
        """Ask the provider about the credential: before anything is written, so that nothing waits for it."""
        fields = self.read(NewProviderKeyShape)
        self.organization, _ = access_organization(self.user, fields.pop("organization_id"), Role.ADMIN)
        self.checked = provider_keys.check_provider_key(
            organization=self.organization,
            given=NewProviderKey(**fields),
            find_provider=self.find_provider,
            **self.read_query(NewProviderKeyQuery),
        )

    @described(
        {"providerKey": ProviderKeyShape()}, body=NewProviderKeyShape, query=NewProviderKeyQuery, refuses=(403, 404)
    )
    def post(self, request: Request) -> Response:
        """Add the organization's own credential for a provider (BYOK)."""
        created = provider_keys.create_provider_key(organization=self.organization, checked=self.checked)
        return Response({"providerKey": ProviderKeyShape(created).data})

    @described({"providerKeys": ProviderKeyShape(many=True)}, query=ProviderKeysQuery, refuses=(403, 404))
    def get(self, request: Request) -> Response:
        """List an organization's provider keys, oldest first."""
        keys = access_provider_keys(self.user, **self.read_query(ProviderKeysQuery))
        return Response({"providerKeys": ProviderKeyShape(keys, many=True).data})


class OneProviderKey(MemberEndpoint):
    """`PATCH /keys/provider/{id}`, `DELETE /keys/provider/{id}`."""

    @described(
        {"message": message_field(), "providerKey": ProviderKeyShape()},
        body=ProviderKeyChangesShape,
        refuses=(403, 404),
    )
    def patch(self, request: Request, key_id: str) -> Response:
        """Activate or deactivate a provider key."""
        key = access_provider_key(self.user, key_id)
        changed = provider_keys.change_provider_key(key=key, **self.read(ProviderKeyChangesShape))
        message = f"Provider key status updated to {changed.status}"
        return Response({"message": message, "providerKey": ProviderKeyShape(changed).data})

    @described({"message": message_field()}, refuses=(403, 404))
    def delete(self, request: Request, key_id: str) -> Response:
        """Delete a provider key and erase its credential."""
        provider_keys.delete_provider_key(key=access_provider_key(self.user, key_id))
        return Response({"message": "Provider key deleted"})

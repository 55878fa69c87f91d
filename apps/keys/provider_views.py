"""Views of provider keys, `/keys/provider`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from apps.keys import provider_keys
from apps.keys.access import PROVIDER_KEYS
from apps.keys.models import ProviderKey
from apps.keys.provider_keys import NewProviderKey
from apps.keys.serializers import NewProviderKeyShape, ProviderKeyChangesShape, ProviderKeyShape
from apps.organizations.integrations.endpoints import Create, Kind, ListEndpoint, LiveQuery, OneEndpoint, documented
from apps.organizations.models import Organization


def _check(organization: Organization, fields: Mapping[str, Any], *, live: bool) -> Create[ProviderKey]:
    given = NewProviderKey(fields["provider"], fields["token"], fields["provider_name"], fields["base_url"])
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

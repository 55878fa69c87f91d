"""Provider keys (BYOK): list, add with a test of the credential, switch on and off, remove."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest

from apps.catalog import catalog_cache
from apps.console.forms import Form, is_unticked
from apps.console.integration_pages import TEST, IntegrationPages
from apps.console.workspace import Workspace
from apps.keys.models import ProviderKey
from apps.keys.provider_keys import CUSTOM
from apps.keys.provider_views import KIND
from apps.organizations.plans import limits_of


class _ProviderKeyPages(IntegrationPages[ProviderKey]):
    kind = KIND
    route, one, parameter = "provider_keys", "provider_key", "key_id"
    noun, credentials = "key for", "credential"

    def added(self, request: HttpRequest, name: str) -> str:
        words = "it was not tested" if is_unticked(request, TEST) else "it works"
        return f"The key for {name} was added; {words}."

    def context(self, request: HttpRequest, workspace: Workspace, form: Form) -> Mapping[str, Any]:
        providers = catalog_cache.current().providers.values()
        listed = sorted((one.name.casefold(), one.name, one.id) for one in providers)
        return {
            "is_allowed": limits_of(workspace.organization.plan).provider_keys,
            # No default choice: a credential must not go to a provider that the user did not choose.
            "providers": [
                ("", "Choose a provider"),
                *((identifier, name) for _, name, identifier in listed),
                (CUSTOM, "Another, OpenAI-compatible …"),
            ],
        }


PATHS = _ProviderKeyPages().paths()

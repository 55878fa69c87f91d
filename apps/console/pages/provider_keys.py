"""Provider keys (BYOK): list, add with a test of the credential, switch on and off, remove."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import path

from apps.catalog import catalog_cache
from apps.catalog.provider_lookup import find_provider
from apps.console.forms import Form, attempt, do_once, is_unticked, read_form
from apps.console.rendering import show
from apps.console.visit import back_to, workspace_page
from apps.console.workspace import Workspace
from apps.keys import provider_keys as actions
from apps.keys.access import NO_PROVIDER_KEY, access_provider_key, access_provider_keys
from apps.keys.models import ProviderKey
from apps.keys.provider_keys import CUSTOM, NewProviderKey
from apps.keys.serializers import NewProviderKeyShape, ProviderKeyChangesShape
from apps.organizations.models import Role
from apps.organizations.plans import limits_of

# Unticked, the credential is saved without a test.
TEST = "test"


@workspace_page("GET", "POST", needs=Role.ADMIN)
def provider_keys(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """List the organization's keys, and add one."""
    if request.method != "POST":
        return _page(request, workspace, Form())
    added, form = attempt(request, lambda: _add(request, workspace))
    if added is None:
        return _page(request, workspace, form)
    words = "it was not tested" if is_unticked(request, TEST) else "it works"
    messages.success(request, f"The key for {added['provider']} was added; {words}.")
    return back_to("provider_keys", workspace)


@workspace_page("POST", needs=Role.ADMIN)
def switch(request: HttpRequest, workspace: Workspace, key_id: str) -> HttpResponse:
    """Switch a key on or off."""
    key = _access(workspace, key_id)
    changed, form = attempt(
        request, lambda: actions.change_provider_key(key=key, **read_form(request, ProviderKeyChangesShape))
    )
    if changed is None:
        return _page(request, workspace, form)
    messages.success(request, f"The key for {changed} is {changed.status} now.")
    return back_to("provider_keys", workspace)


@workspace_page("POST", needs=Role.ADMIN)
def remove(request: HttpRequest, workspace: Workspace, key_id: str) -> HttpResponse:
    """Remove a key; its credential is erased."""
    key = _access(workspace, key_id)
    actions.delete_provider_key(key=key)
    messages.success(request, f"The key for {key} was removed, and its credential erased.")
    return back_to("provider_keys", workspace)


def _add(request: HttpRequest, workspace: Workspace) -> dict[str, str]:
    fields = read_form(request, NewProviderKeyShape, organizationId=str(workspace.organization.id))
    fields.pop("organization_id")
    # The provider is called first, outside any transaction.
    checked = actions.check_provider_key(
        organization=workspace.organization,
        given=NewProviderKey(**fields),
        find_provider=find_provider,
        live=not is_unticked(request, TEST),
    )

    def create() -> dict[str, str]:
        key = actions.create_provider_key(organization=workspace.organization, checked=checked)
        return {"provider": str(key)}

    return do_once(request, workspace.user, create)


def _access(workspace: Workspace, key_id: str) -> ProviderKey:
    """Return a key of this organization. Raises NotFound, also for keys of the visitor's other organizations."""
    key = access_provider_key(workspace.user, key_id)
    workspace.require_own(key.organization_id, NO_PROVIDER_KEY)
    return key


def _page(request: HttpRequest, workspace: Workspace, form: Form) -> HttpResponse:
    providers = sorted((one.name.casefold(), one.name, one.id) for one in catalog_cache.current().providers.values())
    return show(
        request,
        "provider_keys",
        workspace,
        entry="provider_keys",
        status=form.status,
        form=form,
        keys=access_provider_keys(workspace.user, str(workspace.organization.id)),
        is_allowed=limits_of(workspace.organization.plan).provider_keys,
        # No default choice: a credential must not go to a provider that the user did not choose.
        providers=[
            ("", "Choose a provider"),
            *((identifier, name) for _, name, identifier in providers),
            (CUSTOM, "Another, OpenAI-compatible …"),
        ],
    )


_HERE = "o/<str:organization_id>/provider-keys"
PATHS = [
    path(_HERE, provider_keys, name="provider_keys"),
    path(f"{_HERE}/<str:key_id>/switch", switch, name="switch_provider_key"),
    path(f"{_HERE}/<str:key_id>/remove", remove, name="remove_provider_key"),
]

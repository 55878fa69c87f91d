"""Provider keys (BYOK): list, add with a test of the credential, switch on and off, remove; and the models of an
organization's own servers, with their context and prices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.translation import gettext, ngettext

from apps.catalog import catalog_cache
from apps.console.forms import Form, attempt, is_unticked, read_form
from apps.console.integration_pages import TEST, IntegrationPages
from apps.console.rendering import show
from apps.console.visit import back_to, workspace_page
from apps.console.workspace import Workspace
from apps.kernel.errors import NotFound
from apps.kernel.money import plain
from apps.kernel.pages.languages import gettext_lazy
from apps.keys import provider_keys
from apps.keys.access import PROVIDER_KEYS
from apps.keys.models import ProviderKey
from apps.keys.own_models import OwnModel
from apps.keys.provider_keys import CUSTOM
from apps.keys.provider_views import KIND
from apps.keys.serializers import OwnModelChangesShape
from apps.organizations.models import Role

# Models on a page.
MAX_SHOWN = 500
_SERVERS = [
    # The default: without scripts, the form sends it for every provider.
    ("", gettext_lazy("Any OpenAI-compatible server")),
    ("ollama", "Ollama"),
    ("vllm", "vLLM"),
    ("sglang", "SGLang"),
    ("llamacpp", "llama.cpp"),
    ("lmstudio", "LM Studio"),
    ("tgi", "Text Generation Inference"),
]


class _ProviderKeyPages(IntegrationPages[ProviderKey]):
    kind = KIND
    route, one, parameter = "provider_keys", "provider_key", "key_id"
    removed_words = gettext_lazy("The key for {name} was removed, and its credential erased.")
    on_words = gettext_lazy("The key for {name} is active now.")
    off_words = gettext_lazy("The key for {name} is inactive now.")

    def added(self, request: HttpRequest, name: str) -> str:
        if is_unticked(request, TEST):
            return gettext("The key for {name} was added; it was not tested.").format(name=name)
        return gettext("The key for {name} was added; it works.").format(name=name)

    def context(self, request: HttpRequest, workspace: Workspace, form: Form) -> Mapping[str, Any]:
        providers = catalog_cache.current().providers.values()
        listed = sorted((one.name.casefold(), one.name, one.id) for one in providers)
        return {
            "is_allowed": provider_keys.may_have_keys(workspace.organization, CUSTOM),
            "servers": _SERVERS,
            # No default choice: a credential must not go to a provider that the user did not choose.
            "providers": [
                ("", gettext("Choose a provider")),
                *((identifier, name) for _, name, identifier in listed),
                (CUSTOM, gettext("Another, OpenAI-compatible …")),
            ],
        }


PAGES = _ProviderKeyPages()


@workspace_page("GET", "POST", needs=Role.ADMIN)
def provider_models(request: HttpRequest, workspace: Workspace, key_id: str) -> HttpResponse:
    """Show the models of a custom provider, and set the context and prices of one."""
    key = custom_key(workspace, key_id)
    if request.method != "POST":
        return _show_models(request, workspace, key, _form_of(key, request.GET.get("model", "")))
    changed, form = attempt(request, lambda: _change_model(request, key))
    if changed is None:
        return _show_models(request, workspace, key, form)
    messages.success(request, gettext("The model {name} was changed.").format(name=changed.name))
    return back_to("provider_models", workspace, key_id=key_id)


@workspace_page("POST", needs=Role.ADMIN)
def refresh_provider_models(request: HttpRequest, workspace: Workspace, key_id: str) -> HttpResponse:
    """Ask a custom provider's server for its models again."""
    key = custom_key(workspace, key_id)
    refreshed, form = attempt(request, lambda: provider_keys.refresh_models(key=key))
    if refreshed is None:
        return _show_models(request, workspace, key, form)
    listed = sum(one.is_found for one in provider_keys.models_of(refreshed).values())
    messages.success(request, _models_listed(listed))
    return back_to("provider_models", workspace, key_id=key_id)


def custom_key(workspace: Workspace, key_id: str) -> ProviderKey:
    """Return the key of a custom provider of the workspace. Raises NotFound, Forbidden."""
    key = PAGES.access(workspace, key_id)
    if key.provider != CUSTOM:
        raise NotFound(PROVIDER_KEYS.missing)
    return key


def _change_model(request: HttpRequest, key: ProviderKey) -> OwnModel:
    fields = read_form(request, OwnModelChangesShape)
    return provider_keys.change_model(key=key, model=fields.pop("model"), changes=fields)


def _form_of(key: ProviderKey, name: str) -> Form:
    model = provider_keys.models_of(key).get(name)
    if model is None:
        return Form()
    prices = {"inputPrice": model.input_price, "outputPrice": model.output_price}
    own_context = key.model_settings.get(name, {}).get("contextLength", "")
    values = {field: "" if price is None else plain(price) for field, price in prices.items()}
    return Form({"model": name, "contextLength": own_context, **values})


def _models_listed(number: int) -> str:
    words = ngettext("The server lists {number} model.", "The server lists {number} models.", number)
    return words.format(number=number)


def _show_models(request: HttpRequest, workspace: Workspace, key: ProviderKey, form: Form) -> HttpResponse:
    models = list(provider_keys.models_of(key).values())
    return show(
        request,
        "provider_models",
        workspace,
        entry="provider_keys",
        status=form.status,
        form=form,
        key=key,
        # Those with settings first.
        models=sorted(models, key=lambda one: one.name not in key.model_settings)[:MAX_SHOWN],
        count=len(models),
    )


PATHS = [
    *PAGES.paths(),
    path(f"{PAGES.row}/models", provider_models, name="provider_models"),
    path(f"{PAGES.row}/models/refresh", refresh_provider_models, name="refresh_provider_models"),
]

"""Own servers: the replicas of a custom provider, and the capabilities of its models, probed and set."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.translation import gettext

from apps.console.forms import Form, attempt, read_form
from apps.console.labels import CAPABILITY_LABELS
from apps.console.pages.provider_keys import MAX_SHOWN, PAGES, custom_key
from apps.console.rendering import show
from apps.console.visit import back_to, workspace_page
from apps.console.workspace import Workspace
from apps.kernel.pages.languages import gettext_lazy
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.keys import provider_keys, replicas
from apps.keys.models import ProviderKey
from apps.keys.own_models import CAPABILITIES, MAX_REPLICAS, OwnModel
from apps.keys.serializers import OwnModelChangesShape, ProbedModelShape, ReplicaChangesShape
from apps.organizations.models import Role

_ANSWERS = [("", gettext_lazy("as probed or stated")), ("true", gettext_lazy("yes")), ("false", gettext_lazy("no"))]
_MAX_ADDRESS = 500


@workspace_page("GET", "POST", needs=Role.ADMIN)
def own_server(request: HttpRequest, workspace: Workspace, key_id: str) -> HttpResponse:
    """Show the replicas of a custom provider and the capabilities of its models, and set the addresses."""
    key = custom_key(workspace, key_id)
    if request.method != "POST":
        return _show(request, workspace, key, Form())
    changed, form = attempt(request, lambda: _set_addresses(request, key))
    if changed is None:
        return _show(request, workspace, key, form)
    messages.success(request, gettext("The addresses were saved."))
    return back_to("own_server", workspace, key_id=key_id)


@workspace_page("POST", needs=Role.ADMIN)
def drain_replica(request: HttpRequest, workspace: Workspace, key_id: str) -> HttpResponse:
    """Drain a replica, or use it again."""
    key = custom_key(workspace, key_id)
    changed, form = attempt(request, lambda: replicas.drain_replica(key=key, **read_form(request, ReplicaChangesShape)))
    if changed is None:
        return _show(request, workspace, key, form)
    messages.success(request, gettext("The replica was changed."))
    return back_to("own_server", workspace, key_id=key_id)


@workspace_page("POST", needs=Role.ADMIN)
def probe_own_model(request: HttpRequest, workspace: Workspace, key_id: str) -> HttpResponse:
    """Probe what a model can do."""
    key = custom_key(workspace, key_id)
    probed, form = attempt(request, lambda: provider_keys.probe(key=key, **read_form(request, ProbedModelShape)))
    if probed is None:
        return _show(request, workspace, key, form)
    messages.success(request, gettext("The model %(name)s was probed.") % {"name": probed.name})
    return back_to("own_server", workspace, key_id=key_id)


@workspace_page("POST", needs=Role.ADMIN)
def set_own_model(request: HttpRequest, workspace: Workspace, key_id: str) -> HttpResponse:
    """Set the capabilities and the price of an hour of a model."""
    key = custom_key(workspace, key_id)
    changed, form = attempt(request, lambda: _set_model(request, key))
    if changed is None:
        return _show(request, workspace, key, form)
    messages.success(request, gettext("The model %(name)s was changed.") % {"name": changed.name})
    return back_to("own_server", workspace, key_id=key_id)


def _set_addresses(request: HttpRequest, key: ProviderKey) -> ProviderKey:
    addresses = [one for line in request.POST.get("addresses", "").splitlines() if (one := line.strip())]
    if not 1 <= len(addresses) <= MAX_REPLICAS or any(len(one) > _MAX_ADDRESS for one in addresses):
        raise InvalidFields([Issue("addresses", f"Give 1 to {MAX_REPLICAS} addresses, one per line")])
    known = {one.url: one for one in replicas.replicas_of(key)}
    kept = {url: {"name": one.name, "draining": one.draining} for url, one in known.items()}
    wanted = [{"base_url": one, **kept.get(one.rstrip("/"), {})} for one in addresses]
    token = request.POST.get("token", "")
    return replicas.set_replicas(key=key, wanted=wanted, token=token, live=True)


def _set_model(request: HttpRequest, key: ProviderKey) -> OwnModel:
    given = {name: request.POST.get(f"overrides.{name}", "") for name in CAPABILITIES}
    overrides = {name: value == "true" for name, value in given.items() if value in {"true", "false"}}
    fields = read_form(request, OwnModelChangesShape, overrides=overrides)
    return provider_keys.change_model(key=key, model=fields.pop("model"), changes=fields)


def _show(request: HttpRequest, workspace: Workspace, key: ProviderKey, form: Form) -> HttpResponse:
    models = provider_keys.models_of(key)
    chosen = models.get(request.GET.get("model") or request.POST.get("model", ""))
    set_to = {} if chosen is None else {name: str(value).lower() for name, value in chosen.overrides.items()}
    states = replicas.states_of(key)
    return show(
        request,
        "own_server",
        workspace,
        entry="provider_keys",
        status=form.status,
        form=form,
        key=key,
        replicas=states,
        addresses="\n".join(one.base_url for one in states),
        models=list(models.values())[:MAX_SHOWN],
        chosen=chosen,
        # A number of the help of a field, which marks it up.
        observed=f"{chosen.observed_tokens_per_hour:,}" if chosen and chosen.observed_tokens_per_hour else "",
        choices=[(f"overrides.{name}", CAPABILITY_LABELS[name], set_to.get(name, "")) for name in CAPABILITIES],
        answers=_ANSWERS,
    )


PATHS = [
    path(f"{PAGES.row}/server", own_server, name="own_server"),
    path(f"{PAGES.row}/server/drain", drain_replica, name="drain_replica"),
    path(f"{PAGES.row}/server/probe", probe_own_model, name="probe_own_model"),
    path(f"{PAGES.row}/server/set", set_own_model, name="set_own_model"),
]

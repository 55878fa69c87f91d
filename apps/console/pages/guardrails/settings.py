"""Guardrail settings: on or off, each system rule with its action, files, answers; and what all pages of guardrails
share: their tabs, and the page for plans without guardrails.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from math import isfinite
from typing import Any, Concatenate

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import path, reverse
from django.utils.translation import gettext

from apps.console.forms import Form, attempt, read_form
from apps.console.rendering import show
from apps.console.visit import back_to, workspace_page
from apps.console.workspace import Workspace
from apps.guardrails import actions
from apps.guardrails.access import access_guarded
from apps.guardrails.configuration.load_config import system_rule_states
from apps.guardrails.findings.scan_types import EARLIER_TURN
from apps.guardrails.models import Action, GuardrailConfig
from apps.guardrails.rule_thread import loaded_rules
from apps.guardrails.rules import PII_RULE, SystemRule
from apps.guardrails.serializers import GuardrailChangesShape
from apps.kernel.pages.languages import gettext_lazy, translated_choices
from apps.organizations.models import Role
from apps.organizations.plans import limits_of

_TABS = (
    ("guardrails", gettext_lazy("Rules")),
    ("custom_rules", gettext_lazy("Your own rules")),
    ("try_guardrails", gettext_lazy("Try a text")),
    ("violations", gettext_lazy("Violations")),
)
_View = Callable[Concatenate[HttpRequest, Workspace, ...], HttpResponse]


def guarded_page(*methods: str) -> Callable[[_View], Callable[..., Any]]:
    """Make a view a page of an organization whose guardrails the visitor may manage.

    On a plan without guardrails all pages show that they need another plan; forms raise Forbidden.
    """

    def decorate(view: _View) -> Callable[..., Any]:
        @workspace_page(*methods, needs=Role.ADMIN)
        @wraps(view)
        def serve(request: HttpRequest, workspace: Workspace, **names: Any) -> HttpResponse:
            if request.method != "POST" and not limits_of(workspace.organization.plan).guardrails:
                return show(request, "guardrails/no_plan", workspace, entry="guardrails")
            access_guarded(workspace.user, str(workspace.organization.id))
            return view(request, workspace, **names)

        return serve

    return decorate


def show_tab(
    request: HttpRequest, template: str, workspace: Workspace, *, tab: str, status: int = 200, **context: Any
) -> HttpResponse:
    """Return a page of guardrails with its tab open."""
    where = {"organization_id": workspace.organization.id}
    tabs = [(words, reverse(f"console:{route}", kwargs=where), route == tab) for route, words in _TABS]
    return show(request, f"guardrails/{template}", workspace, entry="guardrails", status=status, tabs=tabs, **context)


_FLAGS = {"true": True, "false": False}
_ROLES = (
    ("user", gettext_lazy("Users")),
    ("system", gettext_lazy("System prompts, tools")),
    ("assistant", gettext_lazy("Earlier answers")),
    ("tool_result", gettext_lazy("Tool results")),
    ("document", gettext_lazy("Files")),
    ("earlier_turn", gettext_lazy("Earlier turns")),
)


@guarded_page("GET", "POST")
def guardrails(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Show the settings, and change them."""
    form = Form()
    if request.method == "POST":
        changed, form = attempt(
            request,
            lambda: actions.change_config(
                organization=workspace.organization,
                changes=read_form(request, GuardrailChangesShape, **_given(request)),
            ),
        )
        if changed is not None:
            messages.success(request, gettext("Saved. Takes effect within a second."))
            return back_to("guardrails", workspace)
    row = GuardrailConfig.objects.filter(organization=workspace.organization).first()
    shown = row or GuardrailConfig()
    states = system_rule_states(shown)
    if shown.pii_action is not None:
        states[PII_RULE] = {**states[PII_RULE], "action": shown.pii_action}
    # After a refused form, its rules are shown as submitted.
    said = _rules_said(request)
    return show_tab(
        request,
        "settings",
        workspace,
        tab="guardrails",
        status=form.status,
        form=form,
        config=shown,
        is_configured=row is not None,
        rules=[_shown(rule, states[name], said.get(name, {})) for name, rule in loaded_rules().items()],
        roles=_ROLES,
        has_roles=any(state.get("roles") for state in states.values()),
        actions=translated_choices(Action.choices),
        types="\n".join(shown.allowed_file_types),
    )


@guarded_page("POST")
def reset(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Reset system rules to their defaults; custom rules stay."""
    actions.reset_config(organization=workspace.organization)
    messages.success(request, gettext("System rules were reset to defaults. Your custom rules are unchanged."))
    return back_to("guardrails", workspace)


def _given(request: HttpRequest) -> dict[str, Any]:
    """Return the fields that a form cannot write as JSON: rules by name, and a number that may have a fraction."""
    rules = _rules_said(request)
    given: dict[str, Any] = {"systemRules": rules} if rules else {}
    if "maxFileSizeMb" in request.POST:
        given["maxFileSizeMb"] = _number(request.POST["maxFileSizeMb"])
    if "allowedFileTypes" in request.POST:
        given["allowedFileTypes"] = request.POST["allowedFileTypes"].split()
    return given


def _shown(
    rule: SystemRule, state: dict[str, Any], said: dict[str, Any]
) -> tuple[SystemRule, dict[str, Any], list[tuple[str, ...]]]:
    """Return a rule, its settings as submitted or stored, and of each role its name, words, default, chosen action."""
    chosen = said.get("roles", state.get("roles", {}))
    choices: list[tuple[str, ...]] = []
    for role, words in _ROLES:
        default = "neutralize" if role == EARLIER_TURN else rule.default_action_for(role, state["action"])
        choices.append((role, words, default, chosen.get(role) or ""))
    return rule, {**state, **said}, choices


def _number(text: str) -> float | str:
    """Return a number as JSON holds it; other text stays text, which the serializer rejects."""
    try:
        number = float(text)
    except ValueError:
        return text
    return number if isfinite(number) else text


def _rules_said(request: HttpRequest) -> dict[str, dict[str, Any]]:
    """Return the form's values for each rule by id: `rule.<id>.<enabled, action, restore, observe or roles.<role>>`."""
    rules: dict[str, dict[str, Any]] = {}
    for name, values in request.POST.lists():
        prefix, _, rest = name.partition(".")
        rule, _, field = rest.partition(".")
        if prefix == "rule" and field.startswith("roles."):
            rules.setdefault(rule, {}).setdefault("roles", {})[field.removeprefix("roles.")] = values[-1] or None
        elif prefix == "rule" and field:
            rules.setdefault(rule, {})[field] = values[-1] if field == "action" else _FLAGS.get(values[-1], values[-1])
    return rules


_HERE = "o/<str:organization_id>/guardrails"
PATHS = [
    path(_HERE, guardrails, name="guardrails"),
    path(f"{_HERE}/reset", reset, name="reset_guardrails"),
]

"""Guardrail settings: on or off, each system rule with its action, files, answers."""

from __future__ import annotations

from math import isfinite
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import path

from apps.console.forms import Form, attempt, read_form
from apps.console.pages.guardrails.frame import guarded_page, show_tab
from apps.console.visit import back_to
from apps.console.workspace import Workspace
from apps.guardrails import actions
from apps.guardrails.configuration.load_config import system_rule_states
from apps.guardrails.models import Action, GuardrailConfig
from apps.guardrails.rule_thread import loaded_rules
from apps.guardrails.rules import PII_RULE
from apps.guardrails.serializers import GuardrailChangesShape

_FLAGS = {"true": True, "false": False}


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
            messages.success(request, "Saved. Takes effect within a second.")
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
        rules=[(rule, {**states[name], **said.get(name, {})}) for name, rule in loaded_rules().items()],
        actions=Action.choices,
        types="\n".join(shown.allowed_file_types),
    )


@guarded_page("POST")
def reset(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Reset system rules to their defaults; custom rules stay."""
    actions.reset_config(organization=workspace.organization)
    messages.success(request, "System rules were reset to defaults. Your custom rules are unchanged.")
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


def _number(text: str) -> float | str:
    """Return a number as JSON holds it; other text stays text, which the serializer rejects."""
    try:
        number = float(text)
    except ValueError:
        return text
    return number if isfinite(number) else text


def _rules_said(request: HttpRequest) -> dict[str, dict[str, Any]]:
    """Return the form's values for each rule by id: `rule.<id>.<enabled, action, restore or observe>`."""
    rules: dict[str, dict[str, Any]] = {}
    for name, values in request.POST.lists():
        prefix, _, rest = name.partition(".")
        rule, _, field = rest.rpartition(".")
        if prefix == "rule" and rule:
            rules.setdefault(rule, {})[field] = values[-1] if field == "action" else _FLAGS.get(values[-1], values[-1])
    return rules


_HERE = "o/<str:organization_id>/guardrails"
PATHS = [
    path(_HERE, guardrails, name="guardrails"),
    path(f"{_HERE}/reset", reset, name="reset_guardrails"),
]

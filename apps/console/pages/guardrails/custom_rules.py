"""Custom rules: list, add, change, remove; each type has its own form."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import path
from django.utils.translation import gettext

from apps.console.forms import Form, attempt, do_once, read_form
from apps.console.pages.guardrails.outside_fields import OUTSIDE_FIELDS, shown_fields
from apps.console.pages.guardrails.settings import guarded_page, show_tab
from apps.console.visit import back_to
from apps.console.workspace import Workspace
from apps.guardrails import actions
from apps.guardrails.access import access_custom_rule
from apps.guardrails.configuration.load_config import list_custom_rules
from apps.guardrails.custom.topic_restriction import name_of
from apps.guardrails.matching.stemming import LANGUAGES
from apps.guardrails.models import Action, CustomRule
from apps.guardrails.serializers import CustomRuleChangesShape, NewCustomRuleShape
from apps.kernel.errors import NotFound
from apps.kernel.pages.languages import gettext_lazy, translated_choices

TYPES: Final = {
    "blocked_terms": gettext_lazy("Blocked terms"),
    "custom_regex": gettext_lazy("Regular expression"),
    "topic_restriction": gettext_lazy("Topics"),
    **{name: CustomRule.Type(name).label for name in OUTSIDE_FIELDS},
}
# For each type, the fields of its configuration and their form of input: lines of text, a flag, a text.
_FIELDS: Final[dict[str, dict[str, str]]] = {
    "blocked_terms": {"terms": "lines", "matchType": "text", "caseSensitive": "flag"},
    "custom_regex": {"pattern": "text"},
    "topic_restriction": {"blockedTopics": "lines", "allowedTopics": "lines", "language": "text"},
    **{name: {field.name: field.input for field in fields} for name, fields in OUTSIDE_FIELDS.items()},
}
# Priority of a new rule.
NEW_PRIORITY: Final = 100
MATCHES: Final = (
    ("contains", gettext_lazy("Anywhere in the text")),
    ("exact", gettext_lazy("As whole words")),
    ("regex", gettext_lazy("As expressions")),
)


@guarded_page()
def custom_rules(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """List the organization's custom rules in order of evaluation."""
    rules = [(rule, TYPES.get(rule.type, rule.type)) for rule in list_custom_rules(workspace.organization.id)]
    return show_tab(request, "custom_rules", workspace, tab="custom_rules", rules=rules, types=TYPES.items())


@guarded_page("GET", "POST")
def new_rule(request: HttpRequest, workspace: Workspace, kind: str) -> HttpResponse:
    """Add a rule of one type."""
    if kind not in TYPES:
        raise NotFound("There is no such type of rule")
    form = Form()
    if request.method == "POST":
        made, form = attempt(request, lambda: _add(request, workspace, kind))
        if made is not None:
            messages.success(request, gettext("The rule {name} was added.").format(name=made["name"]))
            return back_to("custom_rules", workspace)
    return _form(request, workspace, kind, form, None)


@guarded_page("GET", "POST")
def one_rule(request: HttpRequest, workspace: Workspace, rule_id: str) -> HttpResponse:
    """Change a rule."""
    rule = access_custom_rule(workspace.user, str(workspace.organization.id), rule_id)
    form = Form()
    if request.method == "POST":
        changed, form = attempt(request, lambda: _change(request, rule))
        if changed is not None:
            messages.success(request, gettext("The rule {name} was saved.").format(name=changed.name))
            return back_to("custom_rules", workspace)
    return _form(request, workspace, rule.type, form, rule)


@guarded_page("POST")
def delete_rule(request: HttpRequest, workspace: Workspace, rule_id: str) -> HttpResponse:
    """Remove a rule; its findings stay."""
    rule = access_custom_rule(workspace.user, str(workspace.organization.id), rule_id)
    actions.delete_rule(rule=rule)
    messages.success(request, gettext("The rule {name} was removed.").format(name=rule.name))
    return back_to("custom_rules", workspace)


def _add(request: HttpRequest, workspace: Workspace, kind: str) -> dict[str, str]:
    fields = read_form(request, NewCustomRuleShape, type=kind, config=_config(request.POST, kind))
    # An address is looked up first: nothing that is open waits for it.
    actions.check_rule(organization=workspace.organization, type=kind, config=fields["config"])

    def create() -> dict[str, str]:
        return {"name": actions.create_rule(organization=workspace.organization, **fields).name}

    return do_once(request, workspace.user, create)


def _change(request: HttpRequest, rule: CustomRule) -> CustomRule:
    config = _changed(rule, request.POST)
    fields = read_form(request, CustomRuleChangesShape, never_empty=("name", "priority"), config=config)
    actions.check_rule(organization=rule.organization, type=rule.type, config=config)
    return actions.change_rule(rule=rule, changes=fields)


def _config(said: QueryDict, kind: str) -> dict[str, Any]:
    """Return the configuration in a form of this type."""
    config: dict[str, Any] = {}
    for name, how in _FIELDS[kind].items():
        text = (said.getlist(name) or [""])[-1]
        if how == "lines":
            config[name] = [line.strip() for line in text.splitlines() if line.strip()]
        elif how == "flag":
            config[name] = text == "true"
        elif how == "number" and text:
            config[name] = _number(text)
        elif text:
            config[name] = text
    return config


def _number(text: str) -> float | str:
    """Return the number in a text; a text that is none, so that its field is refused."""
    try:
        return float(text)
    except ValueError:
        return text


def _changed(rule: CustomRule, said: QueryDict) -> dict[str, Any]:
    """Return a rule's configuration with the changes of a form; synonyms of unchanged topics stay."""
    config = _config(said, rule.type)
    if rule.type == "topic_restriction":
        names = {name_of(topic) for topics in (config["blockedTopics"], config["allowedTopics"]) for topic in topics}
        config["synonyms"] = {name: words for name, words in rule.config.get("synonyms", {}).items() if name in names}
    return config


def _form(request: HttpRequest, workspace: Workspace, kind: str, form: Form, rule: CustomRule | None) -> HttpResponse:
    config = {} if rule is None else rule.config
    shown = {
        name: "\n".join(map(str, config.get(name, []))) if how == "lines" else config.get(name, "")
        for name, how in _FIELDS[kind].items()
    }
    return show_tab(
        request,
        "rule_form",
        workspace,
        tab="custom_rules",
        status=form.status,
        form=form,
        rule=rule,
        kind=kind,
        kind_words=TYPES[kind],
        config=shown,
        priority=NEW_PRIORITY if rule is None else rule.priority,
        actions=[
            one for one in translated_choices(Action.choices) if kind not in OUTSIDE_FIELDS or one[0] != Action.ALLOW
        ],
        outside=shown_fields(kind, config),
        matches=MATCHES,
        languages=[(one, one.title()) for one in LANGUAGES],
    )


_HERE = "o/<str:organization_id>/guardrails/rules"
PATHS = [
    path(_HERE, custom_rules, name="custom_rules"),
    path(f"{_HERE}/new/<str:kind>", new_rule, name="new_rule"),
    path(f"{_HERE}/<str:rule_id>", one_rule, name="one_rule"),
    path(f"{_HERE}/<str:rule_id>/delete", delete_rule, name="delete_rule"),
]

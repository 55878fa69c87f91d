"""API keys: list, create, change, rotate, revoke; and their access rules: list, add, switch on and off, remove."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils import timezone
from django.utils.translation import gettext

from apps.catalog import catalog_cache
from apps.console.forms import Form, attempt, do_once, read_form
from apps.console.pages.limits import rows_of
from apps.console.pages.projects import team_choices
from apps.console.rendering import show
from apps.console.snippets import NO_KEY_HERE, client_settings, first_model, first_requests
from apps.console.visit import lead_to, workspace_page
from apps.console.workspace import Workspace
from apps.kernel.errors import InvalidRequest
from apps.kernel.ids import find_id
from apps.kernel.pages.languages import gettext_lazy
from apps.kernel.postgres import replica
from apps.kernel.postgres.rows import find_row
from apps.keys import actions
from apps.keys.access import NO_KEY, NO_RULE, access_key, access_keys
from apps.keys.iam import EVERY_MCP_SERVER, MCP_FIELD, MCP_SUBJECT
from apps.keys.models import ApiKey, IamRule
from apps.keys.secrets import quoted_key
from apps.keys.serializers import KeyChangesShape, KeyLimitShape, NewKeyShape, NewRuleShape, RotationShape
from apps.limits.models import Limit
from apps.logs.activity import window_of
from apps.logs.usage import find_key_use
from apps.mcp_servers.access import usable_servers
from apps.organizations.models import Project, User
from apps.organizations.plans import limits_of
from apps.organizations.teams.access import access_service_accounts

# Keys on a page of the list; characters of a search term.
PER_PAGE: Final = 50
MAX_WANTED: Final = 100
# Days of a key's sparkline, today included.
SPARKLINE_DAYS: Final = 7
PER_PERIOD: Final = {
    ApiKey.Period.HOUR: gettext_lazy("per hour"),
    ApiKey.Period.DAY: gettext_lazy("per day"),
    ApiKey.Period.WEEK: gettext_lazy("per week"),
    ApiKey.Period.MONTH: gettext_lazy("per month"),
}
PERIODS: Final = (("", gettext_lazy("No limit per period")), *((value, PER_PERIOD[value]) for value in ApiKey.Period))
OVERLAPS: Final = (
    (0, gettext_lazy("Now")),
    (1, gettext_lazy("In an hour")),
    (24, gettext_lazy("In a day")),
    (72, gettext_lazy("In three days")),
    (168, gettext_lazy("In a week")),
)
EFFECTS: Final = (("allow", gettext_lazy("Allow only")), ("deny", gettext_lazy("Deny")))
PRICE_CLASSES: Final = (("free", gettext_lazy("Free models")), ("paid", gettext_lazy("Paid models")))
# The member of a rule's value that lists names, by kind; a rule about prices has none.
_LISTS: Final = {"models": "models", "providers": "providers", MCP_SUBJECT: MCP_FIELD}
_PRICING: Final = "pricing"
_PRICES: Final = (
    ("maxInputPrice", gettext_lazy("input at most ${price} per million tokens")),
    ("maxOutputPrice", gettext_lazy("output at most ${price} per million tokens")),
)
_PRICED_MODELS: Final = {"free": gettext_lazy("free models"), "paid": gettext_lazy("paid models")}
# A rule's effect and kind.
_RULE_NAMES: Final = {
    ("allow", "models"): gettext_lazy("Allow only models"),
    ("deny", "models"): gettext_lazy("Deny models"),
    ("allow", "providers"): gettext_lazy("Allow only providers"),
    ("deny", "providers"): gettext_lazy("Deny providers"),
    ("allow", "pricing"): gettext_lazy("Allow only pricing"),
    ("deny", "pricing"): gettext_lazy("Deny pricing"),
    ("allow", MCP_SUBJECT): gettext_lazy("Allow only MCP servers"),
    ("deny", MCP_SUBJECT): gettext_lazy("Deny MCP servers"),
}


@workspace_page()
def keys(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """List the visitor's keys, or everyone's for admins: newest first, paginated, filtered by a search term."""
    sees_others = workspace.is_admin or workspace.is_lead
    everyones = sees_others and request.GET.get("show") != "mine"
    rows = access_keys(workspace.user, project_id=None, everyones=everyones).keys
    rows = rows.filter(project__organization=workspace.organization).select_related("project").reverse()
    wanted = request.GET.get("q", "").strip()[:MAX_WANTED].replace("\x00", "")
    if wanted:
        named = Q(description__icontains=wanted) | Q(project__name__icontains=wanted) | Q(last_four=wanted)
        rows = rows.filter(quoted_key(wanted) or named)
    shown = Paginator(rows, PER_PAGE).get_page(request.GET.get("page"))
    window = window_of(timezone.now(), days=SPARKLINE_DAYS)
    projects = {key.id: key.project_id for key in shown}
    uses = replica.read(lambda using: find_key_use(workspace.organization.id, projects, window, using=using))
    kept = {"show": "all" if everyones else "mine", **({"q": wanted} if wanted else {})}
    context: dict[str, Any] = {
        "keys": shown,
        "rows": [(key, uses.get(key.id)) for key in shown],
        "form": Form(values={"q": wanted}),
        "wanted": wanted,
        "kept": urlencode(kept),
        "everyones": everyones,
        "sees_others": sees_others,
        "can_create": bool(_open_projects(workspace)),
    }
    return show(request, "keys", workspace, entry="keys", **context)


@workspace_page("GET", "POST")
def new_key(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Create a key, and show it once."""
    projects = _open_projects(workspace)
    form = Form(values={"projectId": request.GET.get("project", ""), "teamId": request.GET.get("team", "")})
    if request.method == "POST":

        def create() -> dict[str, Any]:
            fields = read_form(request, NewKeyShape)
            if fields["project_id"] not in {str(one.id) for one in projects}:
                raise InvalidRequest("Choose one of the projects", param="projectId")
            created = actions.create_api_key(user=workspace.user, **fields)
            return {"id": str(created.key.id), "token": created.token}

        made, form = attempt(request, lambda: do_once(request, workspace.user, create))
        if made is not None:
            return _show_made(request, workspace, made, rotated=False)
    context: dict[str, Any] = {
        "form": form,
        "projects": [(one.id, one.name) for one in projects],
        "teams": team_choices(workspace),
        "accounts": _accounts(workspace),
        "periods": PERIODS,
        "most_keys": limits_of(workspace.organization.plan).api_keys_per_project,
    }
    return show(request, "new_key", workspace, entry="keys", status=form.status, **context)


def _ways_to_use(token: str) -> dict[str, Any]:
    """Return the first requests and client settings for a key."""
    model = first_model()
    return {
        "model": model,
        "first_requests": first_requests(settings.PUBLIC_URL, token, model),
        "clients": client_settings(settings.PUBLIC_URL),
    }


def _show_made(request: HttpRequest, workspace: Workspace, made: dict[str, Any], *, rotated: bool) -> HttpResponse:
    ways = _ways_to_use(made["token"])
    return show(request, "key_made", workspace, entry="keys", made=made, rotated=rotated, **ways)


@workspace_page("GET", "POST")
def one_key(request: HttpRequest, workspace: Workspace, key_id: str) -> HttpResponse:
    """Show a key, and run the submitted form."""
    form, name = Form(), request.POST.get("action", "")
    if name == "rotate":
        # Before the key is looked up: it no longer exists when the same form is submitted again.
        made, form = attempt(
            request, lambda: do_once(request, workspace.user, lambda: _rotate(request, workspace, key_id))
        )
        if made is not None:
            return _show_made(request, workspace, made, rotated=True)
    key = _key_of(workspace, key_id)
    if request.method == "POST" and name != "rotate":
        done, form = attempt(request, lambda: _act(request, name, key, workspace.user))
        if done is not None:
            messages.success(request, done)
            if name == "revoke":
                return lead_to("keys", workspace.organization.id)
            return lead_to("key", workspace.organization.id, key_id=key.id)
    context: dict[str, Any] = {
        "form": form,
        "key": key,
        "has_token": key.prefix not in actions.WITHOUT_TOKEN,
        "teams": team_choices(workspace, key.team),
        "limits": rows_of(Limit.objects.filter(api_key=key).order_by("name", "id")),
        "periods": PERIODS,
        "overlaps": OVERLAPS,
        "origins": "\n".join(key.allowed_origins),
        "picked": request.POST.getlist("providers"),
        **_rules_of(key),
        **_ways_to_use(NO_KEY_HERE),
    }
    return show(request, "key", workspace, entry="keys", status=form.status, **context)


def _key_of(workspace: Workspace, key_id: str) -> ApiKey:
    """Return a key of the organization that the visitor may manage. Raises NotFound, Forbidden."""
    key = access_key(workspace.user, key_id)
    workspace.require_own(key.project.organization_id, NO_KEY)
    return key


def _act(request: HttpRequest, name: str, key: ApiKey, user: User) -> str:
    """Run the action and return its message. Raises InvalidRequest and the errors of the action."""
    if name == "change":
        return _change(request, key, user)
    action = _ACTIONS.get(name)
    if action is None:
        raise InvalidRequest("There is no such action here")
    return action(request, key)


def _change(request: HttpRequest, key: ApiKey, user: User) -> str:
    # The form shows only the date: an unchanged date must neither move the exact time nor be refused as past.
    same = key.expires_at is not None and request.POST.get("expiresAt") == key.expires_at.date().isoformat()
    changes = read_form(
        request,
        KeyChangesShape,
        leave_out=("status", *(("expiresAt",) if same else ())),
        never_empty=("description",),
    )
    limit = read_form(request, KeyLimitShape)
    if find_id(changes.get("team_id") or "") == key.team_id:
        # The form sends the team, changed or not.
        changes.pop("team_id", None)
    actions.change_api_key(key=key, changes={**changes, **limit}, user=user)
    return gettext("Saved.")


def _deactivate(request: HttpRequest, key: ApiKey) -> str:
    actions.change_api_key(key=key, changes={"status": ApiKey.Status.INACTIVE})
    return gettext("The key is off: requests with it are refused until you turn it on again.")


def _activate(request: HttpRequest, key: ApiKey) -> str:
    actions.change_api_key(key=key, changes={"status": ApiKey.Status.ACTIVE})
    return gettext("The key is on.")


def _revoke(request: HttpRequest, key: ApiKey) -> str:
    actions.delete_api_key(key=key)
    return gettext("The key “{description}” was revoked.").format(description=key.description)


def _rotate(request: HttpRequest, workspace: Workspace, key_id: str) -> dict[str, Any]:
    key = _key_of(workspace, key_id)
    overlap = timedelta(hours=read_form(request, RotationShape)["overlap_hours"])
    created = actions.replace_api_key(key=key, user=workspace.user, overlap=overlap)
    return {"id": str(created.key.id), "token": created.token}


def _accounts(workspace: Workspace) -> list[tuple[str, str]]:
    """Return the choices of whom a key belongs to; none where the visitor creates keys for no service account."""
    if not (workspace.is_admin or workspace.is_lead):
        return []
    rows = [(str(one.id), one.name) for one in access_service_accounts(workspace.user, workspace.organization.id)]
    return [("", gettext("You")), *rows] if rows else []


def _open_projects(workspace: Workspace) -> list[Project]:
    return [one for one in workspace.projects if one.status == Project.Status.ACTIVE]


def _rules_of(key: ApiKey) -> dict[str, Any]:
    """Return a key's rules for display, and the choices of the forms."""
    catalog = catalog_cache.current()
    servers = {server.name for server in usable_servers(key.project.organization_id, key.project_id)}
    known = {"models": catalog.models, "providers": catalog.providers, MCP_SUBJECT: {EVERY_MCP_SERVER, *servers}}
    rules = [
        {"id": rule.id, "is_on": rule.status == IamRule.Status.ACTIVE, "words": words_of(rule, known)}
        for rule in key.iam_rules.order_by("created_at", "id")
    ]
    return {
        "rules": rules,
        "mcp_servers": sorted(servers),
        "effects": EFFECTS,
        "price_classes": PRICE_CLASSES,
        "providers": sorted((one.id, one.name) for one in catalog.providers.values()),
    }


def words_of(rule: IamRule, known: Mapping[str, Container[str]]) -> dict[str, Any]:
    """Return a rule as text: its effect, its values, and the values that `known` does not have for its kind."""
    effect, _, kind = rule.rule_type.partition("_")
    value = rule.rule_value
    if kind == _PRICING:
        prices = [(words, value[name]) for name, words in _PRICES if value.get(name) is not None]
        bounds = [words.format(price=price) for words, price in prices]
        things = [", ".join([_PRICED_MODELS.get(value["pricingType"], "{}").format(value["pricingType"]), *bounds])]
        unknown: list[str] = []
    else:
        things = list(value.get(_LISTS[kind], ()))
        # A tool is named after its server; whether the server has it, only the server can say.
        unknown = [one for one in things if (one.partition("/")[0] if kind == MCP_SUBJECT else one) not in known[kind]]
    return {"name": _RULE_NAMES[effect, kind], "kind": kind, "things": things, "unknown": unknown}


def _add_rule(request: HttpRequest, key: ApiKey) -> str:
    """Add the rule of a form. Raises InvalidFields."""
    kind, effect = request.POST.get("kind", ""), request.POST.get("effect", "")
    if kind not in (*_LISTS, _PRICING) or effect not in dict(EFFECTS):
        raise InvalidRequest("There is no such type of rule")
    read = NewRuleShape(data={"ruleType": f"{effect}_{kind}", "ruleValue": _value_of(request, kind)})
    read.is_valid(raise_exception=True)
    rule = read.validated_data
    if kind in _LISTS:
        # Drop duplicates.
        rule = {**rule, "rule_value": {name: list(dict.fromkeys(ids)) for name, ids in rule["rule_value"].items()}}
    actions.create_rule(key=key, **rule)
    return gettext("The rule is on.")


def _switch_rule(request: HttpRequest, key: ApiKey) -> str:
    """Turn a rule off, or on again. Raises NotFound."""
    rule = _rule_of(request, key)
    is_on = rule.status == IamRule.Status.ACTIVE
    actions.change_rule(rule=rule, changes={"status": IamRule.Status.INACTIVE if is_on else IamRule.Status.ACTIVE})
    return gettext("The rule is off.") if is_on else gettext("The rule is on.")


def _remove_rule(request: HttpRequest, key: ApiKey) -> str:
    """Remove a rule. Raises NotFound."""
    actions.delete_rule(rule=_rule_of(request, key))
    return gettext("The rule was removed.")


def _value_of(request: HttpRequest, kind: str) -> dict[str, Any]:
    if kind == _PRICING:
        bounds = {name: request.POST.get(name, "").strip() for name, _ in _PRICES}
        return {
            "pricingType": request.POST.get("pricingType", ""),
            **{name: text for name, text in bounds.items() if text},
        }
    name = _LISTS[kind]
    lines = [line.strip() for text in request.POST.getlist(name) for line in text.splitlines()]
    return {name: [line for line in lines if line]}


def _rule_of(request: HttpRequest, key: ApiKey) -> IamRule:
    return find_row(IamRule.objects.filter(api_key=key), request.POST.get("rule", ""), NO_RULE)


_ACTIONS: Final[dict[str, Callable[[HttpRequest, ApiKey], str]]] = {
    "deactivate": _deactivate,
    "activate": _activate,
    "revoke": _revoke,
    "add-rule": _add_rule,
    "switch-rule": _switch_rule,
    "remove-rule": _remove_rule,
}
PATHS = [
    path("o/<str:organization_id>/keys", keys, name="keys"),
    path("o/<str:organization_id>/keys/new", new_key, name="new_key"),
    path("o/<str:organization_id>/keys/<str:key_id>", one_key, name="key"),
]

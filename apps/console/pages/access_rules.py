"""Access rules of a key as forms, one form for each type of rule.

`apps.keys` validates the values.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Final

from django.http import HttpRequest

from apps.catalog import catalog_cache
from apps.kernel.errors import InvalidRequest
from apps.kernel.postgres.row_lookup import find_row
from apps.keys import actions
from apps.keys.access import NO_RULE
from apps.keys.iam import EVERY_MCP_SERVER, MCP_FIELD, MCP_SUBJECT
from apps.keys.models import ApiKey, IamRule
from apps.keys.serializers import NewRuleShape
from apps.mcp_servers.access import usable_servers

EFFECTS: Final = (("allow", "Allow only"), ("deny", "Deny"))
PRICE_CLASSES: Final = (("free", "Free models"), ("paid", "Paid models"))
# The member of a rule's value that lists names, by kind; a rule about prices has none.
_LISTS: Final = {"models": "models", "providers": "providers", MCP_SUBJECT: MCP_FIELD}
_PRICING: Final = "pricing"
_PRICES: Final = (("maxInputPrice", "input"), ("maxOutputPrice", "output"))


def shown(key: ApiKey) -> dict[str, Any]:
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
        bounds = [f"{words} at most ${price} per million tokens" for words, price in prices]
        things = [", ".join([f"{value['pricingType']} models", *bounds])]
        unknown: list[str] = []
    else:
        things = list(value.get(_LISTS[kind], ()))
        # A tool is named after its server; whether the server has it, only the server can say.
        unknown = [one for one in things if (one.partition("/")[0] if kind == MCP_SUBJECT else one) not in known[kind]]
    return {"effect": dict(EFFECTS)[effect], "kind": kind, "things": things, "unknown": unknown}


def add(request: HttpRequest, key: ApiKey) -> str:
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
    return "The rule is on."


def switch(request: HttpRequest, key: ApiKey) -> str:
    """Turn a rule off, or on again. Raises NotFound."""
    rule = _rule_of(request, key)
    is_on = rule.status == IamRule.Status.ACTIVE
    actions.change_rule(rule=rule, changes={"status": IamRule.Status.INACTIVE if is_on else IamRule.Status.ACTIVE})
    return "The rule is off." if is_on else "The rule is on."


def remove(request: HttpRequest, key: ApiKey) -> str:
    """Remove a rule. Raises NotFound."""
    actions.delete_rule(rule=_rule_of(request, key))
    return "The rule was removed."


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

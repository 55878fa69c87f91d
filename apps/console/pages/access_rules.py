"""Access rules of a key as forms, one form for each type of rule.

`apps.keys` validates the values.
"""

from __future__ import annotations

from typing import Any, Final

from django.http import HttpRequest

from apps.catalog import catalog_cache
from apps.kernel.errors import InvalidRequest, NotFound
from apps.kernel.ids import find_id
from apps.keys import actions
from apps.keys.access import NO_RULE
from apps.keys.models import ApiKey, IamRule
from apps.keys.serializers import NewRuleShape

EFFECTS: Final = (("allow", "Allow only"), ("deny", "Deny"))
PRICE_CLASSES: Final = (("free", "Free models"), ("paid", "Paid models"))
_KINDS: Final = ("models", "providers", "pricing")
_PRICES: Final = (("maxInputPrice", "input"), ("maxOutputPrice", "output"))


def shown(key: ApiKey) -> dict[str, Any]:
    """Return a key's rules for display, and the choices of the forms."""
    catalog = catalog_cache.current()
    rules = [
        {"id": rule.id, "is_on": rule.status == IamRule.Status.ACTIVE, "words": words_of(rule, catalog)}
        for rule in key.iam_rules.order_by("created_at", "id")
    ]
    return {
        "rules": rules,
        "effects": EFFECTS,
        "price_classes": PRICE_CLASSES,
        "providers": sorted((one.id, one.name) for one in catalog.providers.values()),
    }


def words_of(rule: IamRule, catalog: catalog_cache.Catalog) -> dict[str, Any]:
    """Return a rule as text: its effect, its values, and the values that the catalog does not have."""
    effect, _, kind = rule.rule_type.partition("_")
    value = rule.rule_value
    if kind == "pricing":
        prices = [(words, value[name]) for name, words in _PRICES if value.get(name) is not None]
        bounds = [f"{words} at most ${price} per million tokens" for words, price in prices]
        things = [", ".join([f"{value['pricingType']} models", *bounds])]
        unknown: list[str] = []
    else:
        things = list(value.get(kind, ()))
        known = catalog.models if kind == "models" else catalog.providers
        unknown = [one for one in things if one not in known]
    return {"effect": dict(EFFECTS)[effect], "kind": kind, "things": things, "unknown": unknown}


def add(request: HttpRequest, key: ApiKey) -> str:
    """Add the rule of a form. Raises InvalidFields."""
    kind, effect = request.POST.get("kind", ""), request.POST.get("effect", "")
    if kind not in _KINDS or effect not in dict(EFFECTS):
        raise InvalidRequest("There is no such type of rule")
    read = NewRuleShape(data={"ruleType": f"{effect}_{kind}", "ruleValue": _value_of(request, kind)})
    read.is_valid(raise_exception=True)
    rule = read.validated_data
    if kind != "pricing":
        # Drop duplicates.
        rule = {**rule, "rule_value": {kind: list(dict.fromkeys(rule["rule_value"][kind]))}}
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
    if kind == "pricing":
        bounds = {name: request.POST.get(name, "").strip() for name, _ in _PRICES}
        return {
            "pricingType": request.POST.get("pricingType", ""),
            **{name: text for name, text in bounds.items() if text},
        }
    lines = [line.strip() for text in request.POST.getlist(kind) for line in text.splitlines()]
    return {kind: [line for line in lines if line]}


def _rule_of(request: HttpRequest, key: ApiKey) -> IamRule:
    identifier = find_id(request.POST.get("rule", ""))
    rule = IamRule.objects.filter(api_key=key, pk=identifier).first() if identifier else None
    if rule is None:
        raise NotFound(NO_RULE)
    return rule

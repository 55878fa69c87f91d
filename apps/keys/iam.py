"""Access rules (IAM): which offers of the catalog and which tools of MCP servers a key may reach; their values. Pure.

All active rules must agree: a deny always wins; allow rules of one type are united; allow rules of different types must
each allow. Rules about MCP servers apply to their tools only, all other rules to offers only. Values are validated in
shape and size; unknown models, providers and MCP servers are accepted, because they come and go.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Protocol
from uuid import UUID

from apps.kernel.rest.envelopes import Issue

# Subject of the rules about MCP servers, the field of their values, and the name that means every server.
MCP_SUBJECT: Final = "mcp_servers"
MCP_FIELD: Final = "mcpServers"
EVERY_MCP_SERVER: Final = "all"


class Offered(Protocol):
    """A model at a provider and its prices in USD per million tokens, as rules see it."""

    @property
    def model_id(self) -> str:
        """The catalog's id of the model."""

    @property
    def provider_id(self) -> str:
        """The provider's id."""

    @property
    def free(self) -> bool:
        """Whether it is free of charge."""

    @property
    def input_price(self) -> Decimal | None:
        """USD per million prompt tokens."""

    @property
    def output_price(self) -> Decimal | None:
        """USD per million completion tokens."""


@dataclass(frozen=True, slots=True)
class AccessRule:
    """An active access rule; `value` is `ruleValue` as in the API."""

    id: UUID
    type: str
    value: dict[str, Any]

    @property
    def allows(self) -> bool:
        """Whether it is an allow rule."""
        return self.type.startswith("allow_")

    @property
    def is_about_tools(self) -> bool:
        """Whether it is about tools of MCP servers; otherwise it is about offers."""
        return self.type.endswith(f"_{MCP_SUBJECT}")

    def covers(self, offer: Offered) -> bool:
        """Return whether the rule applies to the offer."""
        match self.type.partition("_")[2]:
            case "models":
                return offer.model_id in self.value.get("models", ())
            case "providers":
                return offer.provider_id in self.value.get("providers", ())
            case _:
                return _in_price_class(offer, self.value)


def first_refusal(rules: Sequence[AccessRule], offer: Offered) -> AccessRule | None:
    """Return a rule that denies the offer to the key, or None if all allow it."""
    for rule in rules:
        if not rule.allows and rule.covers(offer):
            return rule
    for kind in dict.fromkeys(rule.type for rule in rules if rule.allows):
        same = [rule for rule in rules if rule.type == kind]
        if not any(rule.covers(offer) for rule in same):
            return same[0]
    return None


def allows_tool(rules: Sequence[AccessRule], server: str, tool: str) -> bool:
    """Return whether the rules about tools let a tool of an MCP server be listed and called."""
    names = {EVERY_MCP_SERVER, server, f"{server}/{tool}"}
    return not _are_denied(rules, names) and _are_allowed(rules, lambda one: one in names)


def allows_some_tool(rules: Sequence[AccessRule], server: str) -> bool:
    """Return whether the rules about tools leave an MCP server anything: one that they do not is as if unknown."""
    whole = {EVERY_MCP_SERVER, server}
    return not _are_denied(rules, whole) and _are_allowed(
        rules, lambda one: one in whole or one.startswith(f"{server}/")
    )


def _are_denied(rules: Sequence[AccessRule], names: set[str]) -> bool:
    """Return whether a deny rule has one of the names."""
    return any(not names.isdisjoint(rule.value.get(MCP_FIELD, ())) for rule in rules if not rule.allows)


def _are_allowed(rules: Sequence[AccessRule], is_meant: Callable[[str], bool]) -> bool:
    """Return whether there is no allow rule, or one names the server or tool."""
    allowed = [rule.value.get(MCP_FIELD, ()) for rule in rules if rule.allows]
    return not allowed or any(is_meant(one) for names in allowed for one in names)


def _in_price_class(offer: Offered, value: dict[str, Any]) -> bool:
    """Return whether the offer matches the rule's price class and price bounds, if given."""
    wanted = value.get("pricingType")
    if wanted is not None and (wanted == "free") != offer.free:
        return False
    return _within(offer.input_price, value.get("maxInputPrice")) and _within(
        offer.output_price, value.get("maxOutputPrice")
    )


def _within(price: Decimal | None, bound: Any) -> bool:
    return bound is None or (price or Decimal(0)) <= Decimal(str(bound))


# Maximum ids in a rule, and characters of each.
MAX_IDS, MAX_ID_LENGTH = 500, 255
# USD per million tokens.
MAX_PRICE = Decimal(1_000_000)
PRICING_TYPES = ("free", "paid")
# An id of a provider in the catalog, or an organization's own; another value would never match.
_PROVIDER = re.compile(r"custom:.+|[a-z0-9][a-z0-9._-]*")
# Prefix by which logs name an MCP server in the provider column. Rules about models and providers never match one.
_MCP = "mcp:"
# A registered server, or one of its tools by the tool's own name.
_MCP_SERVER = re.compile(r"[a-z0-9-]{1,40}(/.+)?", re.DOTALL)
_LISTS = {"models": "models", "providers": "providers", MCP_SUBJECT: MCP_FIELD}
_PRICING = ("pricingType", "maxInputPrice", "maxOutputPrice")


def issues_of(rule_type: str, value: Mapping[str, Any]) -> list[Issue]:
    """Return the problems of a value for a rule of this type; empty if it is valid."""
    subject = rule_type.partition("_")[2]
    known = _PRICING if subject == "pricing" else (_LISTS[subject],)
    issues = [Issue(f"ruleValue.{name}", f"Not a field of {rule_type}") for name in value if name not in known]
    if subject == "pricing":
        return issues + _pricing_issues(value)
    return issues + _list_issues(known[0], value)


def _list_issues(name: str, value: Mapping[str, Any]) -> list[Issue]:
    path = f"ruleValue.{name}"
    if name not in value:
        return [Issue(path, "Required")]
    ids = value[name]
    if not isinstance(ids, list) or not 1 <= len(ids) <= MAX_IDS:
        return [Issue(path, f"Must be a list of 1 to {MAX_IDS} ids")]
    faults = ((index, _fault_of(name, one)) for index, one in enumerate(ids))
    return [Issue(f"{path}[{index}]", fault) for index, fault in faults if fault is not None]


def _fault_of(name: str, one: Any) -> str | None:
    """Return the problem of an id, None if it is valid."""
    if not (isinstance(one, str) and 1 <= len(one) <= MAX_ID_LENGTH and "\0" not in one):
        return f"Must be a string of 1 to {MAX_ID_LENGTH} characters"
    if one.startswith(_MCP):
        return "MCP servers have rules of their own: allow_mcp_servers and deny_mcp_servers, without mcp:"
    if name == MCP_FIELD and not _MCP_SERVER.fullmatch(one):
        return "Must be the name of an MCP server, such as tickets, or a tool of one, such as tickets/search; or all"
    if name == "providers" and not _PROVIDER.fullmatch(one):
        return "Must be the id of a provider, such as openai, or custom: and the name of your own"
    return None


def _pricing_issues(value: Mapping[str, Any]) -> list[Issue]:
    issues = []
    if "pricingType" not in value:
        issues.append(Issue("ruleValue.pricingType", "Required"))
    elif value["pricingType"] not in PRICING_TYPES:
        issues.append(Issue("ruleValue.pricingType", "Must be free or paid"))
    issues += [
        Issue(f"ruleValue.{name}", f"Must be a price from 0 to {MAX_PRICE} USD per million tokens")
        for name in ("maxInputPrice", "maxOutputPrice")
        if name in value and not _is_price(value[name])
    ]
    return issues


def _is_price(value: Any) -> bool:
    """Return whether it is a number or a decimal string within bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float | str) or (len(str(value)) > 40):
        return False
    if isinstance(value, float) and not math.isfinite(value):
        return False
    try:
        price = Decimal(str(value))
    except InvalidOperation:
        return False
    return price.is_finite() and 0 <= price <= MAX_PRICE

"""Access rules (IAM): which offers of the catalog and which tools of MCP servers a key may reach. Pure.

All active rules must agree: a deny always wins; allow rules of one type are united; allow rules of different types must
each allow. Rules about MCP servers apply to their tools only, all other rules to offers only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Protocol
from uuid import UUID

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

"""Validates the values of access rules, by type: shapes and sizes. Pure.

Unknown models, providers and MCP servers are accepted, because they come and go.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from apps.kernel.rest.envelopes import Issue
from apps.keys.iam import MCP_FIELD, MCP_SUBJECT

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

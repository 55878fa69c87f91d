"""Response metadata beside the answer: the routing of the request, and its cost."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec

from apps.billing.pricing import Cost
from apps.gateway.guard.request_guard import RequestGuard
from apps.gateway.upstream.failover import Failover
from apps.logs.entry import Entry

# Parts of a cost that are shown only where they are not zero.
_RARE_PARTS = ("cache_write", "image_input", "image_output", "web_search")


def build_metadata(
    entry: Entry, attempts: Failover, explanation: dict[str, Any], guard: RequestGuard | None, kept: dict[str, Any]
) -> dict[str, object]:
    """Return the answer's `metadata`, with what is `kept` of it; what there is nothing to say of is left out."""
    return {
        "requested_model": entry.requested_model,
        "requested_provider": entry.requested_provider,
        "used_model": entry.used_model,
        "used_provider": entry.used_provider,
        "underlying_used_model": entry.underlying_model,
        "routing": attempts.attempt_log,
        **explanation,
        **({"warnings": msgspec.to_builtins(attempts.dropped_fields)} if attempts.dropped_fields else {}),
        **({"healed": True} if attempts.json_repaired else {}),
        **({"estimated_cost": True} if entry.estimated_cost else {}),
        **kept,
        **({"guardrails": guard.client_report} if guard is not None and guard.client_report else {}),
    }


def cost_breakdown(cost: Cost) -> dict[str, Decimal]:
    """Return a cost in USD: the total, and its parts, which add up to it."""
    parts = {
        "total": cost.total,
        "input": cost.input,
        "output": cost.output,
        "cached_input": cost.cached_input,
        "request": cost.request,
    }
    if cost.total != cost.input + cost.output + cost.cached_input + cost.request:
        more = {name: getattr(cost, name) for name in _RARE_PARTS}
        parts |= {name: amount for name, amount in more.items() if amount}
    return parts

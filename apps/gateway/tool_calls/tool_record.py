"""Tool record: the log row of a call of a tool, and of a listing in which guardrails found something; free of charge.

Each retention level forbids some of its fields.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import msgspec
import structlog

from apps.billing.worker_leases import worker_name
from apps.gateway.access.policy import Policy
from apps.gateway.admission import admit
from apps.gateway.admission.admit import AdmissionGrant
from apps.gateway.metrics import RouteName, record_request_metrics
from apps.gateway.settlement import outbox, record
from apps.gateway.settlement.outbox import charge_of, encode
from apps.gateway.tool_calls import ToolCaller
from apps.guardrails.findings.violation_draft import ViolationDraft
from apps.kernel.errors import ApiError
from apps.kernel.ids import new_id
from apps.kernel.money import ZERO
from apps.logs.entry import Entry
from apps.mcp_servers.client import ToolAnswer
from apps.mcp_servers.models import McpServer

log = structlog.get_logger(__name__)

# The routes of the log, and what stands before a server's name where a provider's would be.
CALL: Final = "mcp_tool_call"
LISTING: Final = "mcp_tool_list"
PROVIDER: Final = "mcp:"
# Characters of a tool's name in the log.
_MAX_NAME_LENGTH: Final = 255


def open_call(identifier: UUID, policy: Policy, server: McpServer, tool: str, caller: ToolCaller) -> Entry:
    """Return the record of a call that is being admitted, valid even if it is never finished."""
    return _open(identifier, policy, server, f"{server.name}/{tool}", tool, CALL, caller)


def keep_arguments(entry: Entry, policy: Policy, tool: str, arguments: dict[str, Any]) -> None:
    """Keep what a tool is given, once nothing is in it any more that must not be kept."""
    if policy.retention == "retain":
        function = {"name": tool, "arguments": msgspec.json.encode(arguments).decode()}
        call = {"id": "call", "type": "function", "function": function}
        entry.messages = [{"role": "assistant", "content": None, "tool_calls": [call]}]


def complete(entry: Entry, policy: Policy, result: ToolAnswer) -> None:
    """Write down that a tool answered; that it failed in its own words is an answer too."""
    _answered(entry)
    if policy.retention != "none":
        entry.finish_reason = "tool_error" if result.is_error else "stop"
    entry.response_size = len(msgspec.json.encode(result))
    if policy.retention == "retain":
        entry.content = result.text or None
        if result.structured is not None:
            entry.tool_results = [{"structuredContent": result.structured}]


def fail(entry: Entry, policy: Policy, error: ApiError) -> None:
    """Write down that a call did not come to its end."""
    record.fail(entry, error, policy.retention)
    _free_of_charge(entry)


def enqueue(
    entry: Entry, granted: AdmissionGrant, violations: Sequence[ViolationDraft] | None, started_at: float
) -> None:
    """Settle the reservation, which holds nothing, and enqueue the record; what goes wrong here spoils no answer."""
    entry.duration = round((time.monotonic() - started_at) * 1000)
    entry.violations = list(violations) if violations else None
    try:
        hold = granted.hold
        settled = None if hold is None else admit.settle(hold, charge_of(entry))
        outbox.enqueue(worker_name(), encode(entry), settled)
    except Exception:
        log.exception("tool_call.not_recorded", request_id=entry.request_id, log_id=str(entry.id))
    record_request_metrics(entry)


def record_listing(policy: Policy, server: McpServer, caller: ToolCaller, violations: Sequence[ViolationDraft]) -> None:
    """Record the findings of guardrails in the descriptions of a server's tools."""
    entry = _open(new_id(), policy, server, server.name, server.name, LISTING, caller)
    _answered(entry)
    enqueue(entry, AdmissionGrant(), violations, time.monotonic())


def _open(
    identifier: UUID, policy: Policy, server: McpServer, name: str, native: str, route: RouteName, caller: ToolCaller
) -> Entry:
    mode = policy.mode if policy.mode != "hybrid" else "credits"
    entry = Entry(
        id=identifier,
        request_id=caller.request_id,
        organization_id=policy.organization_id,
        project_id=policy.project_id,
        api_key_id=policy.api_key_id,
        route=route,
        requested_model=name[:_MAX_NAME_LENGTH],
        used_model=name[:_MAX_NAME_LENGTH],
        used_provider=f"{PROVIDER}{server.name}",
        underlying_model=native[:_MAX_NAME_LENGTH],
        mode=policy.mode,
        used_mode=mode,
        streamed=False,
        unified_finish_reason="gateway_error",
        status_code=500,
        has_error=True,
        error_details={"status": 500, "code": "worker_lost"},
        swept=True,
        retention_level=policy.retention,
    )
    if policy.retention != "none":
        entry.custom_headers, entry.source = caller.custom_headers, caller.source
        entry.session_id, entry.user_agent = caller.session_id, caller.user_agent
    return entry


def _answered(entry: Entry) -> None:
    entry.swept, entry.has_error, entry.canceled, entry.error_details = False, False, False, None
    entry.status_code, entry.unified_finish_reason = 200, "completed"
    _free_of_charge(entry)


def _free_of_charge(entry: Entry) -> None:
    entry.cost = entry.data_storage_cost = ZERO
    entry.estimated_cost, entry.unpriced = False, False

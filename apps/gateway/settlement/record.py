"""Request record: a request's log entry, from its admission to its end, as far as retention allows.

Each retention level forbids some of its fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import msgspec

from apps.billing.ledger import Charge
from apps.billing.pricing import Bill, Cost, bill_at, cost_by, price_storage
from apps.gateway.access.credentials import CREDITS
from apps.gateway.access.policy import Policy
from apps.gateway.canonical.chat import Chat, FunctionTool, ToolResult
from apps.gateway.canonical.events import Reply
from apps.gateway.client.http_request import ClientRequest
from apps.gateway.dialects import ClientDialect, client_dialect_of
from apps.gateway.routing.candidate import Candidate
from apps.gateway.settlement.answer_record import keep_answer
from apps.kernel.errors import ApiError, InvalidRequest
from apps.kernel.money import ZERO
from apps.kernel.prices import PriceCard
from apps.kernel.usage import total_usage
from apps.logs.entry import Entry

_UNIFIED = {
    "stop": "completed",
    "length": "length_limit",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
}
ENCODER = msgspec.json.Encoder(uuid_format="canonical")


def open_entry(identifier: UUID, route: str, policy: Policy, request: ClientRequest, chat: Chat) -> Entry:
    """Return the record of a request that has just been admitted, valid even if it is never finished."""
    entry = Entry(
        id=identifier,
        request_id=request.request_id,
        organization_id=policy.organization_id,
        project_id=policy.project_id,
        api_key_id=policy.api_key_id,
        route=route,
        requested_model=chat.model[:255],
        mode=policy.mode,
        used_mode=policy.mode if policy.mode != "hybrid" else "credits",
        streamed=chat.stream,
        unified_finish_reason="gateway_error",
        status_code=500,
        has_error=True,
        error_details={"status": 500, "code": "worker_lost"},
        swept=True,
        retention_level=policy.retention,
    )
    if policy.retention != "none":
        _keep_parameters(entry, chat, request)
    return entry


def keep_request(entry: Entry, chat: Chat, retention: str) -> None:
    """Keep the request in the client's format, once everything that must not be stored is out of it."""
    if retention == "none":
        return
    # The images API is OpenAI's too.
    dialect = client_dialect_of(chat.dialect or "openai")
    if chat.tool_choice is not None:
        entry.tool_choice = dialect.logged_choice(chat.tool_choice, chat.parallel_tool_calls)
    if chat.tools:
        entry.tools = [tool.name for tool in chat.tools if isinstance(tool, FunctionTool)]
    entry.response_format = {"type": chat.response_format.kind} if chat.response_format else None
    if retention == "retain":
        _keep_content(entry, chat, dialect)


def write_ahead_note(entry: Entry) -> str:
    """Return the entry, which has no content yet, as the write-ahead note that the sweeper turns into a row."""
    return ENCODER.encode(entry).decode()


def set_provider(entry: Entry, candidate: Candidate, requested_provider: str | None) -> None:
    """Write down who answers."""
    entry.requested_provider = requested_provider
    entry.used_model = candidate.model_id
    entry.used_provider = candidate.provider_id
    entry.underlying_model = candidate.model_name
    entry.used_mode = candidate.credential.mode
    entry.provider_key_id = candidate.credential.provider_key_id
    entry.prices = candidate.offer.prices


def set_usage_and_cost(entry: Entry, bill: Bill) -> Cost:
    """Record the usage, and its cost by the bill's prices; return the cost."""
    usage, cost = bill.used, cost_by(bill)
    entry.prices = bill
    if usage.passes:
        usage = total_usage(one.usage for one in usage.passes)
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    entry.prompt_tokens = prompt
    entry.completion_tokens = completion
    entry.total_tokens = prompt + completion
    entry.reasoning_tokens = usage.reasoning or None
    entry.cached_tokens = usage.cache_read
    entry.cache_write_tokens = (usage.cache_write + usage.cache_write_1h) or None
    entry.image_input_tokens = usage.image_input or None
    entry.image_output_tokens = usage.image_output or None
    entry.estimated_cost = bill.used.estimated
    entry.cost = cost.total
    entry.input_cost = cost.input
    entry.output_cost = cost.output
    entry.cached_input_cost = cost.cached_input
    entry.cache_write_cost = cost.cache_write
    entry.request_cost = cost.request
    entry.web_search_cost = cost.web_search
    entry.image_input_cost = cost.image_input
    entry.image_output_cost = cost.image_output
    entry.data_storage_cost = ZERO if bill.waived else price_storage(prompt + completion, entry.retention_level)
    entry.discount_savings = cost.discount_savings
    entry.unpriced = cost.unpriced
    return cost


def complete(entry: Entry, finish: str | None, native: str | None, retention: str) -> None:
    """Write down that the answer came to its end."""
    entry.swept = False
    entry.status_code, entry.has_error, entry.canceled, entry.error_details = 200, False, False, None
    entry.unified_finish_reason = _UNIFIED.get(finish or "", "unknown")
    if retention != "none":
        entry.finish_reason = native or finish


def fail(entry: Entry, error: ApiError, retention: str) -> None:
    """Write down that the request ended in an error, or because its client left."""
    entry.swept = False
    entry.status_code = error.status
    entry.canceled = error.status == 499
    entry.has_error = not entry.canceled
    entry.unified_finish_reason = _unified_of(error)
    entry.error_details = {"status": error.status, "type": error.type, "code": error.code}
    if retention == "retain":
        # A provider's words may quote the request.
        entry.error_details["message"] = error.message
    if entry.cost is None:
        set_usage_and_cost(entry, bill_at(entry.prices or PriceCard(), waived="failed"))


def encode_with_answer(entry: Entry, chat: Chat, reply_of: Callable[[], Reply], speech: bytes | None) -> bytes:
    """Keep the model's answer, for organizations that retain content, and return the record as JSON."""
    keep_answer(entry, chat, reply_of(), speech)
    return encode(entry)


def encode(entry: Entry) -> bytes:
    """Return the record as JSON."""
    return ENCODER.encode(entry)


def charge_of(entry: Entry) -> Charge:
    """Return what a record moves: always the key's usage, the credits only when the service's credentials were used."""
    cost = entry.cost or ZERO
    return Charge(
        organization_id=entry.organization_id,
        api_key_id=entry.api_key_id,
        reference=entry.id,
        credits=-cost if entry.used_mode == CREDITS else ZERO,
        usage=cost,
        storage=entry.data_storage_cost or ZERO,
        is_held=_is_of_batch(entry.prices),
    )


def _is_of_batch(prices: Any) -> bool:
    """Return whether a provider's batch API answered; prices are a bill, or what JSON made of one."""
    share = prices.get("batch_share") if isinstance(prices, dict) else getattr(prices, "batch_share", None)
    return share is not None


def _unified_of(error: ApiError) -> str:
    if error.status == 499:
        return "canceled"
    if error.from_provider:
        return "upstream_error"
    return "gateway_error" if error.status >= 500 else "client_error"


def _keep_parameters(entry: Entry, chat: Chat, request: ClientRequest) -> None:
    entry.temperature, entry.top_p, entry.max_tokens = chat.temperature, chat.top_p, chat.max_tokens
    entry.frequency_penalty, entry.presence_penalty = chat.frequency_penalty, chat.presence_penalty
    if chat.reasoning is not None:
        entry.reasoning_effort, entry.reasoning_max_tokens = chat.reasoning.effort, chat.reasoning.max_tokens
    entry.custom_headers, entry.source = request.custom_headers, request.source
    if chat.preferences is not None and chat.preferences.tags:
        # Where tags of a request can be looked for and exported.
        tags = {f"tag:{tag}": "true" for tag in chat.preferences.tags}
        entry.custom_headers = {**(entry.custom_headers or {}), **tags}


def _keep_content(entry: Entry, chat: Chat, dialect: ClientDialect) -> None:
    try:
        asked = dialect.logged_request(chat)
    except InvalidRequest:
        # No request is refused for the log's sake.
        asked = {"messages": chat.messages, "tools": chat.tools, "tool_choice": entry.tool_choice}
    entry.messages, entry.tools = asked["messages"], asked.get("tools")
    entry.tool_choice, entry.response_format = asked.get("tool_choice"), asked.get("response_format")
    if ToolResult in chat.kinds:
        entry.tool_results = dialect.logged_results(msgspec.json.decode(ENCODER.encode(entry.messages))) or None

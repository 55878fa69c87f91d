"""The log entry: the record of one request that the gateway hands over to log, ledger and key usage.

A plain value that travels through the outbox as JSON. Content fields are set only if the organization's retention
allows it, so content that must not be stored cannot leak.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec


class ProviderOutcome(msgspec.Struct, omit_defaults=True, kw_only=True, frozen=True):
    """The outcome of one call of a provider, for the roll-up of performance.

    `first_token` is the time to the first token of a streamed answer in milliseconds; `tokens` are output tokens
    written in `writing` milliseconds, 0 where they say nothing about speed.
    """

    model: str
    provider: str
    succeeded: bool
    first_token: int | None = None
    tokens: int = 0
    writing: int = 0


class Entry(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One finished request. Fields are columns of `RequestLog` unless noted; units are the same.

    `created_at` is part of `id`.
    """

    id: UUID
    request_id: str
    organization_id: UUID
    project_id: UUID
    api_key_id: UUID
    provider_key_id: UUID | None = None
    route: str
    duration: int = 0
    time_to_first_token: int | None = None

    requested_model: str
    requested_provider: str | None = None
    used_model: str = ""
    used_provider: str = ""
    underlying_model: str = ""

    messages: Any = None
    content: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: Any = None
    tool_call_counts: dict[str, int] | None = None
    choices: Any = None
    citations: Any = None
    media: Any = None
    media_data: str | None = None
    response_size: int = 0

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    image_input_tokens: int | None = None
    image_output_tokens: int | None = None

    cost: Decimal | None = None
    input_cost: Decimal | None = None
    output_cost: Decimal | None = None
    cached_input_cost: Decimal | None = None
    cache_write_cost: Decimal | None = None
    request_cost: Decimal | None = None
    web_search_cost: Decimal | None = None
    image_input_cost: Decimal | None = None
    image_output_cost: Decimal | None = None
    data_storage_cost: Decimal | None = None
    discount_savings: Decimal | None = None
    estimated_cost: bool | None = None
    unpriced: bool = False
    prices: Any = None

    temperature: float | None = None
    max_tokens: int | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    reasoning_effort: str | None = None
    reasoning_max_tokens: int | None = None
    response_format: Any = None
    tools: Any = None
    tool_choice: Any = None
    tool_results: Any = None

    finish_reason: str | None = None
    unified_finish_reason: str | None = None
    status_code: int | None = None
    has_error: bool | None = None
    canceled: bool | None = None
    error_details: Any = None

    streamed: bool | None = None
    cached: bool | None = None
    custom_headers: dict[str, str] | None = None
    mode: str
    used_mode: str = ""
    source: str | None = None
    session_id: str | None = None
    user_agent: str | None = None
    routing_metadata: Any = None
    # Findings of guardrails; not a column of the log.
    violations: Any = None
    # Amounts for counters of limits, as JSON (`apps/limits/applied.py`); not a column of the log.
    limits: msgspec.Raw = msgspec.Raw()
    # Outcomes of the provider calls; not a column of the log.
    outcomes: list[ProviderOutcome] | None = None
    swept: bool = False
    retention_level: str = "none"

"""Records and rows of requests, made for tests."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import transaction

from apps.kernel.ids import new_id
from apps.keys.models import ApiKey
from apps.logs import writer
from apps.logs.entry import Entry

# Every field that may be absent, each with a value of its own.
FULL: dict[str, Any] = {
    "provider_key_id": new_id(),
    "time_to_first_token": 40,
    "requested_provider": "openai",
    "messages": [{"role": "user", "content": "Grüße, 世界 🌍"}],
    "content": "Hello\n\tthere \\ \\N end",
    "reasoning_content": "Let me think",
    "refusal": "I must decline",
    "tool_calls": [{"id": "call-1", "name": "search", "arguments": "{}"}],
    "tool_call_counts": {"search": 1},
    "choices": [{"index": 0, "finishReason": "stop", "contentLength": 3}],
    "citations": [{"type": "url_citation", "url_citation": {"url": "https://example.com"}}],
    "media": [{"kind": "image", "contentType": "image/png", "size": 3, "stored": True}],
    "media_data": "ZTE=",
    "response_size": 2048,
    **{
        name: number
        for number, name in enumerate(
            [
                "prompt_tokens",
                "completion_tokens",
                "total_tokens",
                "reasoning_tokens",
                "cached_tokens",
                "cache_write_tokens",
                "image_input_tokens",
                "image_output_tokens",
            ],
            start=1,
        )
    },
    **{
        name: Decimal(f"0.{number:012}")
        for number, name in enumerate(
            [
                "cost",
                "input_cost",
                "output_cost",
                "cached_input_cost",
                "cache_write_cost",
                "request_cost",
                "web_search_cost",
                "image_input_cost",
                "image_output_cost",
                "data_storage_cost",
                "discount_savings",
            ],
            start=1,
        )
    },
    "estimated_cost": False,
    "unpriced": True,
    "prices": {"input": "2.5", "output": "10"},
    "temperature": 0.7,
    "max_tokens": 4096,
    "top_p": 0.9,
    "frequency_penalty": -0.5,
    "presence_penalty": 0.25,
    "reasoning_effort": "high",
    "reasoning_max_tokens": 1024,
    "response_format": {"type": "json_object"},
    "tools": ["search"],
    "tool_choice": "auto",
    "tool_results": [{"id": "call-1", "ok": True}],
    "finish_reason": "stop",
    "error_details": {"status": 502, "nested": [None, 1.5, "x"]},
    "canceled": False,
    "streamed": True,
    "cached": False,
    "custom_headers": {"team": "blue"},
    "source": "web",
    "session_id": "run-1",
    "user_agent": "claude-cli/2.1",
    "routing_metadata": {"selectedProvider": "openai"},
}


def id_at(moment: datetime) -> UUID:
    """Return an id that was made at a moment."""
    milliseconds = int(moment.timestamp() * 1000)
    random = int.from_bytes(os.urandom(8), "big") >> 2
    return UUID(int=(milliseconds << 80) | (0x7 << 76) | (0b10 << 62) | random)


def ago(**units: float) -> datetime:
    """Return the moment so many `days=`, `minutes=` … ago."""
    return datetime.now(UTC) - timedelta(**units)


def entry(key: ApiKey | None = None, **fields: Any) -> Entry:
    """Return the record of a plain request of the key's; fields say what differs."""
    owner = (
        {"organization_id": new_id(), "project_id": new_id(), "api_key_id": new_id()}
        if key is None
        else {"organization_id": key.project.organization_id, "project_id": key.project_id, "api_key_id": key.id}
    )
    usual = {
        "id": new_id(),
        "request_id": "req-1",
        "route": "chat_completions",
        "duration": 120,
        "requested_model": "gpt-5",
        "used_model": "gpt-5",
        "used_provider": "openai",
        "underlying_model": "gpt-5-2026-08-07",
        "unified_finish_reason": "completed",
        "status_code": 200,
        "has_error": False,
        "mode": "credits",
        "used_mode": "credits",
    }
    return Entry(**(usual | owner | fields))


def write(*entries: Entry) -> list[UUID]:
    """Write entries as the settler does; return their ids in their order."""
    with transaction.atomic():
        writer.write(entries)
    return [one.id for one in entries]

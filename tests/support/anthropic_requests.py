"""Asking for messages in Anthropic's format, of an upstream of either format."""

from __future__ import annotations

from typing import Any

from apps.catalog.models import Provider
from apps.kernel.valkey import generation
from tests.support.upstream import Caller

WEATHER = {
    "name": "get_weather",
    "description": "The weather in a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def ask(caller: Caller, content: Any = "hello", path: str = "/v1/messages", **fields: Any) -> Any:
    """Send a request to `sandbox/echo` unless `model` says otherwise; a field that is None is left out."""
    headers = {"x-api-key": caller.token, "anthropic-version": "2023-06-01", **fields.pop("headers", {})}
    body = {
        "model": "sandbox/echo",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": content}],
        **fields,
    }
    body = {name: value for name, value in body.items() if value is not None}
    return caller.client.post(path, body, content_type="application/json", headers=headers)


def speak(wire_format: str) -> None:
    """Make the sandbox a provider of that format."""
    auth = {"openai": "bearer", "anthropic": "x-api-key"}[wire_format]
    Provider.objects.filter(pk="sandbox").update(dialect=wire_format, auth=auth)
    generation.bump(generation.CATALOG)

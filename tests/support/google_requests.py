"""Asking in Google's format, of an upstream of any format."""

from __future__ import annotations

import json
from typing import Any

from tests.support.upstream import Caller

WEATHER = {
    "name": "get_weather",
    "description": "The weather in a city",
    "parameters": {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}, "required": ["city"]},
}


def ask(caller: Caller, text: Any = "hello", *, path: str | None = None, **fields: Any) -> Any:
    """Send a request to `sandbox/echo` unless `model` says otherwise; `method` is the model's method, `headers` are
    HTTP headers (a key is among them unless `key` is None), `query` follows the path."""
    model, method = fields.pop("model", "sandbox/echo"), fields.pop("method", "generateContent")
    key = fields.pop("key", caller.token)
    headers = {**({} if key is None else {"x-goog-api-key": key}), **fields.pop("headers", {})}
    query = fields.pop("query", "")
    parts = [{"text": text}] if isinstance(text, str) else text
    body = {"contents": [{"role": "user", "parts": parts}], **fields}
    body = {name: value for name, value in body.items() if value is not None}
    where = path or f"/v1beta/models/{model}:{method}"
    return caller.client.post(where + query, body, content_type="application/json", headers=headers)


def text_of(response: Any) -> str:
    """Return the words of a whole answer."""
    parts = response.json()["candidates"][0]["content"]["parts"]
    return "".join(part.get("text", "") for part in parts)


def chunks_of(response: Any) -> list[dict[str, Any]]:
    """Return the responses of a stream, whichever way they come."""
    text = b"".join(response.streaming_content).decode()
    if text.startswith("["):
        return list(json.loads(text))
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


def error_of(response: Any) -> tuple[int, str, str]:
    """Return status, Google's word for it, and the message of a refusal."""
    error = response.json()["error"]
    assert error["code"] == response.status_code
    return response.status_code, error["status"], error["message"]

"""Replay of a logged request: a chat in OpenAI's format that the playground opens, whichever format the client used."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from apps.console.snippets import MAX_BODY, request_body
from apps.gateway.dialects import client_dialect_of
from apps.kernel.errors import InvalidRequest
from apps.logs.query import LogRow

# The format of a route's requests.
_FORMATS: Final = {"chat_completions": "openai", "messages": "anthropic", "responses": "responses"}
_SYSTEM: Final = frozenset({"system", "developer"})
_ENCODER: Final = msgspec.json.Encoder()


def replay_of(row: LogRow) -> dict[str, Any] | None:
    """Return a row's request for the playground, None where the row lacks it or the playground cannot send it.

    `system` is the text of a first system prompt; it is not among the `messages` then.
    """
    body = request_body(row)
    if body is None:
        return None
    asked = _in_openais_format(_FORMATS[row["route"]], body)
    if asked is None or not asked.get("messages"):
        return None
    messages, system = asked["messages"], ""
    if messages[0].get("role") in _SYSTEM and isinstance(text := _text_of(messages[0].get("content")), str):
        system, messages = text, messages[1:]
    return {
        "log": str(row["id"]),
        "model": row["requested_model"],
        "system": system,
        "messages": messages,
        "tools": asked.get("tools"),
        "temperature": row["temperature"],
        "maxTokens": row["max_tokens"],
        "effort": row["reasoning_effort"],
        "stream": bool(row["streamed"]),
    }


def _in_openais_format(name: str, body: dict[str, Any]) -> dict[str, Any] | None:
    if name == "openai":
        return body
    try:
        chat = client_dialect_of(name).read_request(_ENCODER.encode(body))
        encoded = _ENCODER.encode(client_dialect_of("openai").logged_request(chat))
    except InvalidRequest:
        # A newer version may refuse what an older one logged, and OpenAI's format lacks some parts.
        return None
    if len(encoded) > MAX_BODY:
        return None
    asked: dict[str, Any] = msgspec.json.decode(encoded)
    return asked


def _text_of(content: Any) -> Any:
    """Return the text of a message that has nothing else."""
    if isinstance(content, list) and all(isinstance(part, dict) and "text" in part for part in content):
        return "\n\n".join(str(part["text"]) for part in content)
    return content

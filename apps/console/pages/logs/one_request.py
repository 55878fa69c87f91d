"""The details of one request for its page: costs, tokens, attempts, conversation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from apps.logs.query import LogRow

# Characters of one message, and messages, on the page; the export has all of them.
MAX_CHARACTERS, MAX_MESSAGES = 20_000, 100
_COSTS: Final = (
    ("input_cost", "Input"),
    ("cached_input_cost", "Cached input"),
    ("cache_write_cost", "Written to the cache"),
    ("output_cost", "Output"),
    ("image_input_cost", "Images in"),
    ("image_output_cost", "Images out"),
    ("request_cost", "Per request"),
    ("web_search_cost", "Web search"),
)
_TOKENS: Final = (
    ("prompt_tokens", "Prompt"),
    ("cached_tokens", "of which read from the cache"),
    ("cache_write_tokens", "of which written to the cache"),
    ("image_input_tokens", "of which images"),
    ("completion_tokens", "Completion"),
    ("reasoning_tokens", "of which reasoning"),
    ("image_output_tokens", "of which generated images"),
    ("total_tokens", "Total"),
)
_PARAMETERS: Final = (
    ("temperature", "Temperature"),
    ("top_p", "Top p"),
    ("max_tokens", "Most tokens"),
    ("frequency_penalty", "Frequency penalty"),
    ("presence_penalty", "Presence penalty"),
    ("reasoning_effort", "Reasoning effort"),
    ("reasoning_max_tokens", "Most reasoning tokens"),
)
_REASONS: Final = {
    "single-provider-available": "the only provider that could answer",
    "direct-provider-specified": "the request named it",
    "weighted-score": "the best score",
    "price-only-no-metrics": "the best price; no speed was measured yet",
    "session-affinity": "the conversation's prompt is cached there",
    "random-exploration": "a trial, to measure it",
    "circuit-probe": "a trial, to see whether it has recovered",
    "low-uptime-fallback": "the named provider's uptime was below 90 %",
}


@dataclass(frozen=True)
class SaidMessage:
    """A message of the conversation; `pieces` are (kind, text), where kind is `text` or the name of another part."""

    role: str
    pieces: list[tuple[str, str]]


@dataclass(frozen=True)
class Told:
    """The details of a request that its page shows beside the columns."""

    costs: list[tuple[str, Decimal]]
    tokens: list[tuple[str, int]]
    parameters: list[tuple[str, Any]]
    tags: list[tuple[str, str]]
    attempts: list[Mapping[str, Any]]
    scores: list[Mapping[str, Any]]
    selected: str
    reason: str
    losses: list[str]
    error: Mapping[str, Any]
    messages: list[SaidMessage] = field(default_factory=list)
    left_out: int = 0


def describe_request(row: LogRow) -> Told:
    """Return the details of a log row."""
    routing = _json(row["routing_metadata"])
    routing = routing if isinstance(routing, dict) else {}
    error = _json(row["error_details"])
    headers = _json(row["custom_headers"])
    messages = list(_messages(_json(row["messages"])))
    reason = str(routing.get("selectionReason") or "")
    return Told(
        costs=[(words, row[name]) for name, words in _COSTS if row[name]],
        tokens=[(words, row[name]) for name, words in _TOKENS if row[name] is not None],
        parameters=[(words, row[name]) for name, words in _PARAMETERS if row[name] is not None],
        tags=sorted((str(name), str(value)) for name, value in headers.items()) if isinstance(headers, dict) else [],
        attempts=_objects(routing.get("routing")),
        scores=_objects(routing.get("providerScores")),
        selected=str(routing.get("selectedProvider") or ""),
        reason=_REASONS.get(reason, reason.replace("-", " ")),
        losses=[str(one.get("param") or "") for one in _objects(routing.get("warnings"))],
        error=error if isinstance(error, dict) and row["has_error"] else {},
        messages=messages[:MAX_MESSAGES],
        left_out=max(0, len(messages) - MAX_MESSAGES),
    )


def _json(text: Any) -> Any:
    """Return a JSON column, which rows carry as its text."""
    return json.loads(text) if isinstance(text, str) else text


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _messages(said: Any) -> Iterator[SaidMessage]:
    """Yield messages in OpenAI's, Anthropic's or Gemini's format; other values unchanged."""
    if isinstance(said, str):
        yield SaidMessage("user", [("text", _short(said))])
    elif isinstance(said, list):
        for one in said:
            if isinstance(one, dict):
                content = next((one[name] for name in ("content", "parts", "output", "arguments") if name in one), None)
                pieces = list(_pieces(content))
                pieces += [("tool call", _short(_text(call))) for call in one.get("tool_calls") or ()]
                yield SaidMessage(str(one.get("role") or one.get("type") or "input"), pieces)
            else:
                yield SaidMessage("input", [("text", _short(_text(one)))])
    elif said is not None:
        yield SaidMessage("input", [("JSON", _short(_text(said)))])


def _pieces(content: Any) -> Iterator[tuple[str, str]]:
    if isinstance(content, str):
        yield "text", _short(content)
    elif isinstance(content, list):
        for part in content:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield "text", _short(part["text"])
            else:
                kind = part.get("type") if isinstance(part, dict) else None
                yield str(kind or "part"), _short(_text(part))
    elif content is not None:
        yield "JSON", _short(_text(content))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _short(text: str) -> str:
    if len(text) <= MAX_CHARACTERS:
        return text
    return f"{text[:MAX_CHARACTERS]}\n… {len(text) - MAX_CHARACTERS:,} more characters; the export has them"

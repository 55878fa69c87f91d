"""Every field of the newest SDKs' request types is honoured, told or refused by each format; the rest has a reason.

Fails when a newer SDK brings a field that has no effect and no reason here, and when a reason is not needed any more.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from fnmatch import fnmatchcase
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming

from apps.gateway.canonical.chat import Target
from apps.gateway.dialects import anthropic, google, openai, responses
from apps.kernel.errors import InvalidRequest
from tests.gateway.dialects.sdk_fields.requests import Pair, pairs_of

USER = {"role": "user", "content": "?"}
CLIENTS: dict[str, tuple[Any, ModuleType, dict[str, Any]]] = {
    "chat": (CompletionCreateParamsNonStreaming, openai, {"model": "m", "messages": [USER]}),
    "responses": (ResponseCreateParamsNonStreaming, responses, {"model": "m", "input": "?"}),
    "messages": (MessageCreateParamsNonStreaming, anthropic, {"model": "m", "max_tokens": 9, "messages": [USER]}),
}
PROVIDERS = {module.NAME: module for module in (openai, responses, anthropic, google)}

# Kinds and places within a path.
_NOT_A_NAME = re.compile(r"<[^>]*>|\[\d+\]")
WITHOUT_TOOLS = "it says how tools are called, and the least request has none"
USUAL = "the least value asks for what happens anyway"
GATEWAYS = "the gateway does it itself, for every provider"
# By `client>provider`: paths of fields that change nothing, and why that is right.
REASONS: dict[str, dict[str, str]] = {
    "*>*": {
        "model": "the catalog names the model for its provider",
        "parallel_tool_calls": WITHOUT_TOOLS,
        "tool_choice": WITHOUT_TOOLS,
        "tool_choice.*disable_parallel_tool_use": WITHOUT_TOOLS,
        "tool_choice.<mcp>name": WITHOUT_TOOLS,
        "function_call": WITHOUT_TOOLS,
        "stream": USUAL,
        "stream_options*": GATEWAYS,
        "store": GATEWAYS,
        "response_format": USUAL,
        "text": USUAL,
        "text.format": USUAL,
        "reasoning": USUAL,
        "service_tier": USUAL,
        "modalities": USUAL,
        "metadata": USUAL,
        "output_config": USUAL,
        "tools.type": USUAL,
        "messages.content.<image_url>image_url.detail": USUAL,
        "*citations": "the least value switches no citations on",
    },
    "*>anthropic": {
        "response_format.<json_schema>json_schema.description": "without a schema there is nothing to describe",
        "*strict": "a schema always binds the answer there",
        "tools.<web_search>user_location.type": USUAL,
    },
    "*>google": {
        "response_format.<json_schema>json_schema.description": "without a schema there is nothing to describe",
        "*strict": "a schema always binds the answer there",
        "audio": "it is about sound, which the least request does not ask for",
        "messages.content.<document>title": "a document is sent whole; its name has no place beside the bytes",
    },
    "*>responses": {
        "stop": GATEWAYS,
        "stop_sequences": GATEWAYS,
    },
    "responses>*": {
        "reasoning.summary": "how much is told of the thinking is up to each model",
        "input.type": USUAL,
        "input*status": "an item that comes back is over, whatever it says",
        "input*phase": "models that know phases (`takes`) get it",
        "input*logprobs": "how likely earlier words were says nothing to a model",
        "input.<configuration_update>*": USUAL,
        "*prompt_cache_breakpoint.ttl": "the mark is told; how long it would have lasted is no loss of its own",
        "reasoning.generate_summary": "how much is told of the thinking is up to each model",
    },
    "messages>*": {
        "thinking.*display": GATEWAYS,
        "*cache_control.<ephemeral>ttl": "the mark is told; how long it would have lasted is no loss of its own",
    },
}


class Outcomes(NamedTuple):
    """How many fields went which way, and which had no effect at all."""

    counts: Counter[str]
    silent: list[str]


def written(client: ModuleType, provider: ModuleType, request: Any) -> tuple[Any, list[str]] | None:
    """Return what a provider is sent for a request, and which fields are told; None for one that is refused."""
    target = Target(model_name="m", facts={}, dropped_fields=[])
    try:
        body = json.loads(provider.write_request(client.read_request(json.dumps(request).encode()), target))
    except InvalidRequest:
        return None
    return body, [dropped.param for dropped in target.dropped_fields]


def outcome_of(pair: Pair, base: Any, client: ModuleType, provider: ModuleType) -> str:
    """Return what became of a field."""
    with_it = written(client, provider, {**base, **pair.with_it})
    if with_it is None:
        return "refused"
    without = written(client, provider, {**base, **pair.without})
    if without is None or with_it[0] != without[0]:
        return "honoured"
    plain = _NOT_A_NAME.sub("", pair.path)
    # What holds the field may be left out as a whole: then that is told.
    told = with_it[1] != without[1] or any(
        f"{plain}.".startswith(f"{name}.") or (name.endswith("content") and plain.startswith(name[:5]))
        for name in (_NOT_A_NAME.sub("", told) for told in with_it[1])
    )
    return "told" if told else "silent"


def outcomes_of(client: str, provider: str) -> Outcomes:
    """Return what became of every field of a client's request type."""
    kind, dialect, base = CLIENTS[client]
    pairs = list(pairs_of(kind))
    ways = [outcome_of(pair, base, dialect, PROVIDERS[provider]) for pair in pairs]
    silent = [pair.path for pair, way in zip(pairs, ways, strict=True) if way == "silent"]
    return Outcomes(Counter(ways), silent)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcomes]:
    """What became of every field, by `client>provider`."""
    return {f"{client}>{name}": outcomes_of(client, name) for client in CLIENTS for name in PROVIDERS}


def reason_for(direction: str, path: str) -> str | None:
    for where, reasons in REASONS.items():
        if fnmatchcase(direction, where):
            for pattern, reason in reasons.items():
                if fnmatchcase(path, pattern):
                    return reason
    return None


def test_no_field_is_without_effect_and_without_a_reason(outcomes: dict[str, Outcomes]) -> None:
    for direction, found in outcomes.items():
        print(direction, dict(found.counts))  # noqa: T201 - what CONTRIBUTING tells to look at
    unexplained = {
        f"{direction} {path}"
        for direction, found in outcomes.items()
        for path in found.silent
        if reason_for(direction, path) is None
    }
    assert sorted(unexplained) == []


def test_every_reason_is_needed(outcomes: dict[str, Outcomes]) -> None:
    for where, reasons in REASONS.items():
        for pattern in reasons:
            silent = [
                path for direction in outcomes if fnmatchcase(direction, where) for path in outcomes[direction].silent
            ]
            assert any(fnmatchcase(path, pattern) for path in silent), f"{where}: {pattern}"


def test_the_types_are_looked_into(outcomes: dict[str, Outcomes]) -> None:
    assert {client: sum(outcomes[f"{client}>openai"].counts.values()) > 70 for client in CLIENTS} == dict.fromkeys(
        CLIENTS, True
    )
    assert outcomes["messages>anthropic"].counts["honoured"] > 400

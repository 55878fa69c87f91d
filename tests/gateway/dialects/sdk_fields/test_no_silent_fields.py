"""Every field of the newest SDKs' request types is honoured, told or refused by each format; the rest has a reason.

Fails when a newer SDK brings a field that has no effect and no reason here, and when a reason is not needed any more.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatchcase
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from anthropic.types.beta.message_create_params import MessageCreateParamsNonStreaming as BetaMessageCreateParams
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming

from apps.gateway.canonical.chat import Target
from apps.gateway.dialects.chat import anthropic, bedrock, cohere, google, openai, responses
from apps.kernel.errors import InvalidRequest
from tests.gateway.dialects.sdk_fields import anthropic_requests, google_requests
from tests.gateway.dialects.sdk_fields.requests import Pair, pairs_of


class Client(NamedTuple):
    """A client's SDK: the type of its requests, the dialect that reads them, what each holds, and how the SDK sends
    one (None for what it does not)."""

    kind: Any
    dialect: ModuleType
    base: dict[str, Any]
    body_of: Callable[[Any], Any] = lambda request: request


USER = {"role": "user", "content": "?"}
MESSAGE = {"model": "m", "max_tokens": 9, "messages": [USER]}
CLIENTS = {
    "chat": Client(CompletionCreateParamsNonStreaming, openai, {"model": "m", "messages": [USER]}),
    "responses": Client(ResponseCreateParamsNonStreaming, responses, {"model": "m", "input": "?"}),
    "messages": Client(MessageCreateParamsNonStreaming, anthropic, MESSAGE, anthropic_requests.body_of),
    "messages-beta": Client(BetaMessageCreateParams, anthropic, MESSAGE, anthropic_requests.body_of),
    "gemini": Client(google_requests.GoogleRequest, google, {}, google_requests.body_of),
}
PROVIDERS = {module.NAME: module for module in (openai, responses, anthropic, google, bedrock, cohere)}

# Kinds and places within a path.
_NOT_A_NAME = re.compile(r"<[^>]*>|\[\d+\]")
_UNDERSCORED = re.compile("_([a-z])")
# Where Google's SDK sends the fields of its config, by the beginning of their paths.
_SENT_AS = {
    "config.modelSelectionConfig": "generationConfig.modelConfig",
    "config.generationOutputConfig": "outputConfig",
    **{
        f"config.{name}": name
        for name in ("cachedContent", "labels", "modelArmorConfig", "safetySettings", "systemInstruction")
    },
    **{f"config.{name}": name for name in ("serviceTier", "toolConfig", "tools")},
    "config.": "generationConfig.",
}
WITHOUT_TOOLS = "it says how tools are called, and the least request has none"
USUAL = "the least value asks for what happens anyway"
GATEWAYS = "the gateway does it itself, for every provider"
BOUND = {
    "response_format.<json_schema>json_schema.description": "without a schema there is nothing to describe",
    "*strict": "a schema always binds the answer there",
}
UNASKED = "these models think only where they are asked to"
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
        **BOUND,
        "tools.<web_search>user_location.type": USUAL,
    },
    "*>bedrock": {
        **BOUND,
        "reasoning_effort": UNASKED,
        "reasoning.effort": UNASKED,
        "contents.parts.inline_data.display_name": "pictures have no names there",
    },
    "*>cohere": {**BOUND, "reasoning_effort": UNASKED, "reasoning.effort": UNASKED},
    "*>google": {
        **BOUND,
        "audio": "it is about sound, which the least request does not ask for",
        "messages.content.*<document>title": "a document is sent whole; its name has no place beside the bytes",
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
    "messages-beta>*": {
        "fallbacks": GATEWAYS,
        "messages.output_config": USUAL,
        "messages.content.<tool_addition>tool.<tool_definition>definition.type": USUAL,
    },
    "gemini>*": {
        "config": USUAL,
        "config.tools": USUAL,
        "config.tool_config": USUAL,
        "config.tool_config.function_calling_config": USUAL,
        "config.thinking_config": USUAL,
        "config.thinking_config.include_thoughts": GATEWAYS,
        "config.image_config": USUAL,
        "config.stop_sequences": GATEWAYS,
        "config.response_schema.*default": "it says nothing about the form of an answer",
        "contents.parts.function_response.parts": "a part that holds nothing",
        "config.tools.function_declarations.parameters.<OBJECT>nullable": "a call always has arguments",
    },
    "messages*>*": {
        "messages.content.<tool_use>caller": "the least caller is the model itself, as of every call",
        "thinking.*display": GATEWAYS,
        "*cache_control.<ephemeral>ttl": "the mark is told; how long it would have lasted is no loss of its own",
    },
}


class Outcomes(NamedTuple):
    """How many fields went which way, and which had no effect at all."""

    counts: Counter[str]
    silent: list[str]


def written(client: ModuleType, provider: ModuleType, request: Any) -> tuple[bytes, list[str]] | None:
    """Return the provider's request, and the fields reported as lost; None for a request that is refused."""
    target = Target(model_name="m", facts={}, dropped_fields=[])
    try:
        chat = client.read_request(json.dumps(request).encode())
        body = provider.write_request(chat, target)
    except InvalidRequest:
        return None
    return body, [dropped.param for dropped in (*target.dropped_fields, *(chat.dropped_fields or ()))]


def outcome_of(pair: Pair, client: ModuleType, provider: ModuleType) -> str:
    """Return what became of a field."""
    with_it = written(client, provider, pair.with_it)
    if with_it is None:
        return "refused"
    without = written(client, provider, pair.without)
    if without is None or with_it[0] != without[0]:
        return "honoured"
    plain = plain_name(pair.path)
    # The object that holds the field may be left out as a whole: then its name is reported.
    told = with_it[1] != without[1] or any(
        f"{plain}.".startswith(f"{name}.") or (name.endswith("content") and plain.startswith(name[:5]))
        for name in map(plain_name, with_it[1])
    )
    return "told" if told else "silent"


def outcomes_of(client: Client, provider: ModuleType) -> Outcomes:
    """Return what became of every field of a client's request type."""
    ways = {}
    for path, without, with_it in pairs_of(client.kind):
        sent = Pair(path, *(client.body_of({**client.base, **request}) for request in (without, with_it)))
        if sent.with_it is not None and sent.with_it != sent.without:
            ways[path] = outcome_of(sent, client.dialect, provider)
    return Outcomes(Counter(ways.values()), [path for path, way in ways.items() if way == "silent"])


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcomes]:
    """The outcome of every field, by `client>provider`."""
    return {
        f"{client}>{name}": outcomes_of(CLIENTS[client], provider)
        for client in CLIENTS
        for name, provider in PROVIDERS.items()
    }


def plain_name(path: str) -> str:
    """Return a path without kinds and places in it, and as bodies have it: Google's SDK has names of its own."""
    plain = _NOT_A_NAME.sub("", path).replace("content.content", "content")
    plain = _UNDERSCORED.sub(lambda letter: letter[1].upper(), plain)
    for prefix, sent_as in _SENT_AS.items():
        if plain.startswith(prefix):
            return plain.replace(prefix, sent_as, 1)
    return plain


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

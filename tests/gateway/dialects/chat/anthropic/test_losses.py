"""Fields of a chat that Anthropic's format cannot take: noted under the client's own names, and thinking gives way."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.gateway.canonical.chat import Target
from apps.gateway.dialects.chat import anthropic, google, openai
from apps.kernel.errors import InvalidRequest

USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "f"}}
BUDGET = {"reasoning_budget": {"min": 1024}}


def sent(
    *messages: dict[str, Any], facts: dict[str, Any] | None = None, **fields: Any
) -> tuple[dict[str, Any], list[str]]:
    """Return the request written from an OpenAI client's, and the lost fields."""
    body = {"model": "m", "messages": [USER, *messages], "max_tokens": 4_000, **fields}
    target = Target(model_name="m", facts=facts or {}, max_output=8_000)
    wire = json.loads(anthropic.write_request(openai.read_request(json.dumps(body).encode()), target))
    return wire, [loss.param for loss in target.dropped_fields]


@pytest.mark.parametrize(
    ("fields", "facts", "thinking", "losses"),
    [
        (
            {"reasoning": {"max_tokens": 500}},
            BUDGET,
            {"type": "enabled", "budget_tokens": 1_024},
            ["reasoning.max_tokens"],
        ),
        (
            {"reasoning": {"max_tokens": 9_000}},
            BUDGET,
            {"type": "enabled", "budget_tokens": 3_999},
            ["reasoning.max_tokens"],
        ),
        ({"reasoning_effort": "low", "max_tokens": 1_000}, BUDGET, None, ["reasoning_effort"]),
        ({"reasoning_effort": "high", "tools": [TOOL], "tool_choice": "required"}, {}, None, ["reasoning_effort"]),
        (
            {"reasoning_effort": "high", "temperature": 0.5, "top_k": 3},
            {},
            {"type": "adaptive"},
            ["temperature", "top_k"],
        ),
        ({"reasoning_effort": "high", "temperature": 1}, {}, {"type": "adaptive"}, []),
        ({"reasoning": {"max_tokens": 9_000}}, {"temperature": False}, {"type": "adaptive"}, ["reasoning.max_tokens"]),
    ],
)
def test_thinking_fits_or_gives_way(
    fields: dict[str, Any], facts: dict[str, Any], thinking: dict[str, Any] | None, losses: list[str]
) -> None:
    wire, lost = sent(facts=facts, **fields)
    assert (wire.get("thinking"), lost) == (thinking, losses)


def test_an_answer_that_is_begun_rules_thinking_out_and_some_models_refuse_it() -> None:
    begun = {"role": "assistant", "content": "Once"}
    assert sent(begun, reasoning_effort="low")[1] == ["reasoning_effort"]
    with pytest.raises(InvalidRequest) as refusal:
        sent(begun, facts={"prefill": False})
    assert (refusal.value.code, refusal.value.param) == ("unsupported_feature", "messages")


def test_a_model_that_chooses_its_words_alone_is_not_told_how() -> None:
    wire, lost = sent(facts={"temperature": False}, temperature=0.2, top_k=3)
    assert (wire.keys() & {"temperature", "top_k"}, lost) == (set(), ["temperature", "top_k"])
    assert sent(facts={"temperature": False}, temperature=1) == (
        {"model": "m", "max_tokens": 4_000, "messages": [USER]},
        [],
    )


def test_hints_and_fields_of_others_are_noted() -> None:
    _, lost = sent(
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/1.png", "detail": "low"}}]},
        x_new=1,
        seed=3,
        stop=["\n", "END"],
        service_tier="flex",
        tools=[{"type": "web_search", "search_context_size": "low"}],
        top_p=0.5,
        temperature=1.5,
    )
    assert lost == [
        "x_new",
        "messages[1].content[0].image_url.detail",
        "temperature",
        "top_p",
        "stop",
        "service_tier",
        "seed",
        "tools[0].search_context_size",
    ]


def test_usual_values_are_no_losses() -> None:
    fields = {"n": 1, "frequency_penalty": 0, "store": False, "service_tier": "auto", "top_p": 1, "temperature": 0.5}
    assert sent(logprobs=False, parallel_tool_calls=True, **fields)[1] == []


LOSSES = {
    "openai": [
        "messages.content",
        "mcp_servers",
        "metadata.other",
        "anthropic-beta",
        "messages.content.cache_control",
        "messages.content",
    ],
    "google": [
        "messages.content",
        "mcp_servers",
        "metadata.other",
        "anthropic-beta",
        "messages.content.cache_control",
        "messages.content",
        "metadata.user_id",
    ],
}


@pytest.mark.parametrize("dialect", [openai, google])
def test_anthropics_clients_are_told_in_their_words(dialect: Any) -> None:
    body = {
        "model": "m",
        "max_tokens": 9,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2"},
            {"type": "text", "text": "Be brief", "cache_control": {"type": "ephemeral"}},
        ],
        "messages": [
            {"role": "user", "content": "?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm", "signature": "c2ln"},
                    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
                    {"type": "text", "text": "Ok"},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "search_result", "title": "T", "source": "S", "content": [{"text": "C"}]}],
            },
        ],
        "metadata": {"user_id": "u", "other": 1},
        "mcp_servers": [],
        "thinking": {"type": "adaptive"},
    }
    chat = anthropic.read_request(json.dumps(body).encode())
    chat.betas = ["one-2026"]
    target = Target(model_name="m", facts={})
    wire = dialect.write_request(chat, target).decode()
    losses = [loss.param for loss in target.dropped_fields]
    assert losses == LOSSES[dialect.NAME]
    assert "billing" not in wire
    assert "T\\nS\\nC" in wire

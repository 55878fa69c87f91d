"""At which tier of service, in which region and over which models an answer says that it was computed."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from apps.gateway.canonical.chat import Chat, OpaqueTool, WebSearchTool, asked_region, asked_service_tier
from apps.gateway.canonical.events import UsageReported
from apps.gateway.canonical.hosted_tools import hosted_tools, runs_code_free
from apps.gateway.dialects import find_dialect
from apps.gateway.dialects.media.images.provider import openai as images
from apps.kernel.usage import ModelPass, Usage

CHAT: dict[str, Any] = {
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
}
RESPONSE: dict[str, Any] = {
    "status": "completed",
    "output": [],
    "usage": {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12},
}
GEMINI: dict[str, Any] = {"candidates": [{"content": {"parts": [{"text": "Hi"}]}, "index": 0, "finishReason": "STOP"}]}
CONVERSE = {
    "output": {"message": {"role": "assistant", "content": [{"text": "Hi"}]}},
    "stopReason": "end_turn",
    "usage": {"inputTokens": 10, "outputTokens": 2, "totalTokens": 12},
}
MESSAGE = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "c",
    "content": [{"type": "text", "text": "Hi"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
}
MESSAGE_USAGE = {"input_tokens": 10, "output_tokens": 2}
GEMINI_USAGE = {"promptTokenCount": 10, "candidatesTokenCount": 2, "totalTokenCount": 12}


def used(dialect: str, answer: dict[str, Any]) -> Usage:
    speaks = find_dialect(dialect)
    assert speaks is not None
    return next(event.usage for event in speaks.read_reply(msgspec.json.encode(answer)) if type(event) is UsageReported)


@pytest.mark.parametrize(
    ("dialect", "answer", "tier"),
    [
        ("openai", CHAT, ""),
        ("openai", {**CHAT, "service_tier": "default"}, "default"),
        ("openai", {**CHAT, "service_tier": "flex"}, "flex"),
        ("openai", {**CHAT, "service_tier": "priority"}, "priority"),
        ("openai", {**CHAT, "service_tier": "fast"}, "priority"),
        ("openai", {**CHAT, "service_tier": "ultrafast"}, "ultrafast"),
        ("openai", {**CHAT, "service_tier": "on_demand"}, "default"),
        ("openai", {**CHAT, "service_tier": 5}, ""),
        ("responses", RESPONSE, ""),
        ("responses", {**RESPONSE, "service_tier": "priority"}, "priority"),
        ("google", {**GEMINI, "usageMetadata": GEMINI_USAGE}, ""),
        ("google", {**GEMINI, "usageMetadata": {**GEMINI_USAGE, "trafficType": "ON_DEMAND"}}, "default"),
        ("google", {**GEMINI, "usageMetadata": {**GEMINI_USAGE, "trafficType": "ON_DEMAND_FLEX"}}, "flex"),
        ("google", {**GEMINI, "usageMetadata": {**GEMINI_USAGE, "trafficType": "PROVISIONED_THROUGHPUT"}}, "default"),
        ("google", {**GEMINI, "usageMetadata": {**GEMINI_USAGE, "serviceTier": "priority"}}, "priority"),
        ("bedrock", CONVERSE, ""),
        ("bedrock", {**CONVERSE, "serviceTier": {"type": "priority"}}, "priority"),
        ("bedrock", {**CONVERSE, "serviceTier": {"type": "default"}}, "default"),
        ("bedrock", {**CONVERSE, "serviceTier": "priority"}, ""),
        ("anthropic", {**MESSAGE, "usage": {**MESSAGE_USAGE, "service_tier": "priority"}}, ""),
        ("anthropic", {**MESSAGE, "usage": {**MESSAGE_USAGE, "speed": "fast"}}, "fast"),
        ("anthropic", {**MESSAGE, "usage": {**MESSAGE_USAGE, "speed": "standard"}}, "default"),
    ],
)
def test_the_tier_that_an_answer_names(dialect: str, answer: dict[str, Any], tier: str) -> None:
    assert used(dialect, answer) == Usage(input=10, output=2, service_tier=tier)


@pytest.mark.parametrize(
    ("geography", "region"), [("us", "us"), ("global", "global"), ("not_available", "global"), (None, ""), (7, "")]
)
def test_the_region_that_an_answer_names(geography: object, region: str) -> None:
    answer = {**MESSAGE, "usage": {**MESSAGE_USAGE, "inference_geo": geography}}
    assert used("anthropic", answer) == Usage(input=10, output=2, region=region)


MAIN = {"type": "message", "input_tokens": 10, "output_tokens": 2}


@pytest.mark.parametrize(
    ("iterations", "passes"),
    [
        (None, ()),
        ("nonsense", ()),
        ([MAIN], ()),
        ([None, 5, {}, MAIN], ()),
        (
            [{"type": "compaction", "input_tokens": 100, "output_tokens": 30}, MAIN],
            (
                ModelPass(usage=Usage(input=100, output=30)),
                ModelPass(usage=Usage(input=10, output=2)),
            ),
        ),
        (
            [
                MAIN,
                {
                    "type": "advisor_message",
                    "model": "claude-opus-4-6",
                    "input_tokens": 800,
                    "output_tokens": 500,
                    "cache_read_input_tokens": 7,
                    "cache_creation": {"ephemeral_1h_input_tokens": 9},
                },
            ],
            (
                ModelPass(usage=Usage(input=10, output=2)),
                ModelPass(model="claude-opus-4-6", usage=Usage(input=800, output=500, cache_read=7, cache_write_1h=9)),
            ),
        ),
    ],
)
def test_the_passes_that_anthropic_tells(iterations: object, passes: tuple[ModelPass, ...]) -> None:
    answer = {**MESSAGE, "usage": {**MESSAGE_USAGE, "iterations": iterations}}
    assert used("anthropic", answer) == Usage(input=10, output=2, passes=passes)


def test_very_many_passes_are_added_up_by_model() -> None:
    answer = {**MESSAGE, "usage": {**MESSAGE_USAGE, "iterations": [MAIN] * 150 + [{**MAIN, "model": "wise"}]}}
    assert used("anthropic", answer).passes == (
        ModelPass(usage=Usage(input=1_500, output=300)),
        ModelPass(model="wise", usage=Usage(input=10, output=2)),
    )


@pytest.mark.parametrize(
    ("fields", "tier", "region"),
    [
        ({}, "", ""),
        ({"service_tier": "auto"}, "", ""),
        ({"service_tier": "standard_only"}, "", ""),
        ({"service_tier": "flex"}, "flex", ""),
        ({"service_tier": "fast"}, "priority", ""),
        ({"extra": {"speed": "fast"}}, "", ""),
        ({"dialect": "anthropic", "extra": {"speed": "fast", "inference_geo": "us"}}, "fast", "us"),
        ({"dialect": "anthropic", "extra": {"speed": "standard", "inference_geo": "global"}}, "", ""),
    ],
)
def test_what_a_chat_asks_for(fields: dict[str, Any], tier: str, region: str) -> None:
    chat = Chat(model="m", messages=[], **fields)
    assert (asked_service_tier(chat), asked_region(chat)) == (tier, region)


def test_what_perplexity_says_of_its_search() -> None:
    counts: dict[str, Any] = {**CHAT["usage"]}
    usage = {**counts, "search_context_size": "low", "cost": {"request_cost": 0.006, "total_cost": 0.01}}
    assert used("openai", {**CHAT, "usage": usage}) == Usage(
        input=10, output=2, web_searches=1, search_size="low", reported_search_cost=Decimal("0.006")
    )
    for nonsense in ("0.006", -1, 1_000, True, None):
        said = {**usage, "cost": {"request_cost": nonsense}}
        assert used("openai", {**CHAT, "usage": said}) == Usage(input=10, output=2, web_searches=1, search_size="low")


def test_cached_sound_is_told_apart() -> None:
    usage = {
        **GEMINI_USAGE,
        "cachedContentTokenCount": 8,
        "cacheTokensDetails": [{"modality": "AUDIO", "tokenCount": 6}, {"modality": "IMAGE", "tokenCount": 9}],
    }
    assert used("google", {**GEMINI, "usageMetadata": usage}) == Usage(
        input=2, output=2, cache_read=8, cache_read_audio=6, cache_read_image=2
    )
    details = {"cached_tokens": 8, "cached_tokens_details": {"audio_tokens": 3, "image_tokens": 9}}
    chat = {**CHAT["usage"], "prompt_tokens_details": details}
    assert used("openai", {**CHAT, "usage": chat}) == Usage(
        input=2, output=2, cache_read=8, cache_read_audio=3, cache_read_image=5
    )


# --- calls of tools that the provider ran


def test_containers_and_searches_of_files_are_counted_in_a_response() -> None:
    ran = {"type": "code_interpreter_call", "code": "1", "status": "completed"}
    items = [
        {**ran, "id": "c1", "container_id": "a"},
        {**ran, "id": "c2", "container_id": "a"},
        {**ran, "id": "c3", "container_id": "b"},
        {"type": "file_search_call", "id": "f1", "queries": ["x"], "status": "completed"},
        {"type": "file_search_call", "id": "f2", "queries": ["y"], "status": "completed"},
        {"type": "web_search_call", "id": "w1", "action": {"type": "search", "query": "x"}, "status": "completed"},
    ]
    assert used("responses", {**RESPONSE, "output": items}) == Usage(
        input=10, output=2, web_searches=1, tool_calls={"file_search": 2, "code_interpreter": 2}
    )


def test_calls_that_xai_counts_go_before_what_is_seen() -> None:
    counted = {"web_search_calls": 3, "x_search_calls": 2, "code_interpreter_calls": 0, "mcp_calls": 4}
    usage = {**RESPONSE["usage"], "server_side_tool_usage_details": counted}
    searched = {"type": "web_search_call", "id": "w1", "action": {"type": "search", "query": "x"}}
    assert used("responses", {**RESPONSE, "output": [searched], "usage": usage}) == Usage(
        input=10, output=2, web_searches=3, tool_calls={"x_search": 2}
    )


def test_grounding_with_maps_is_counted_once() -> None:
    places = [{"maps": {"uri": "https://maps.test/1", "title": "a"}}, {"maps": {"uri": "https://maps.test/2"}}]
    candidate = {**GEMINI["candidates"][0], "groundingMetadata": {"groundingChunks": places}}
    answer = {"candidates": [candidate], "usageMetadata": GEMINI_USAGE}
    assert used("google", answer) == Usage(input=10, output=2, tool_calls={"google_maps": 1})
    token = {**candidate, "groundingMetadata": {"googleMapsWidgetContextToken": "w"}}
    assert used("google", {**answer, "candidates": [token]}).tool_calls == {"google_maps": 1}


def test_queries_that_calls_of_googles_tools_tell_are_counted() -> None:
    """Beside functions no metadata tell them; what both tell is one query."""

    def call(kind: str, *queries: str) -> dict[str, Any]:
        return {"toolCall": {"id": "1", "toolType": kind, "args": {"queries": list(queries)}}}

    parts = [
        call("GOOGLE_SEARCH_WEB", "sun", "rain", ""),
        call("GOOGLE_SEARCH_IMAGE", "sun"),
        call("GOOGLE_MAPS", "pizza", "pasta"),
        {"toolCall": {"id": "2", "toolType": "GOOGLE_MAPS"}},
        call("URL_CONTEXT", "snow"),
        {"text": "Hi"},
    ]
    grounding = {"webSearchQueries": ["sun", "wind"], "imageSearchQueries": ["moon", ""]}
    candidate = {"content": {"parts": parts}, "finishReason": "STOP", "groundingMetadata": grounding}
    answer = {"candidates": [candidate], "usageMetadata": GEMINI_USAGE}
    assert used("google", answer) == Usage(input=10, output=2, web_searches=5, tool_calls={"google_maps": 3})


def test_an_answer_that_names_a_container_has_had_code_run() -> None:
    message = {**MESSAGE, "usage": MESSAGE_USAGE}
    answer = {**message, "container": {"id": "container_1", "expires_at": "2026-12-01T00:00:00Z"}}
    assert used("anthropic", answer) == Usage(input=10, output=2, tool_calls={"code_execution": 1})
    assert used("anthropic", {**message, "container": None}) == Usage(input=10, output=2)


@pytest.mark.parametrize(
    ("tools", "extra", "free"),
    [
        ([], {}, False),
        ([{"type": "code_execution_20250825"}], {}, False),
        ([{"type": "code_execution_20250825"}, {"type": "web_fetch_20250910"}], {}, False),
        ([{"type": "code_execution_20250825"}, {"type": "web_fetch_20260209"}], {}, True),
        ([{"type": "web_fetch_20260309"}], {}, True),
        ([{"type": "web_fetch_x"}, {"type": 7}], {}, False),
        ([], {"container": "container_1"}, True),
        ([], {"container": {"id": "container_1", "skills": []}}, True),
        ([], {"container": {"skills": []}}, False),
    ],
)
def test_code_is_free_beside_searches_that_run_code_and_in_a_container_that_was_paid_for(
    tools: list[dict[str, Any]], extra: dict[str, Any], free: bool
) -> None:
    opaque: list[Any] = [OpaqueTool(dialect="anthropic", data=data) for data in tools]
    assert runs_code_free(Chat(model="m", messages=[], tools=opaque, extra=extra)) is free
    search = WebSearchTool(extra={"type": "web_search_20260209"})
    assert runs_code_free(Chat(model="m", messages=[], tools=[*opaque, search], extra=extra)) is True


@pytest.mark.parametrize(
    ("ticks", "cost"),
    [(37_756_000, "0.0037756"), (0, "0"), (10**12, "100"), (10**12 + 1, None), (-1, None), ("1", None), (True, None)],
)
def test_what_xai_says_that_an_answer_cost(ticks: object, cost: str | None) -> None:
    told = None if cost is None else Decimal(cost)
    said = {"cost_in_usd_ticks": ticks}
    assert used("openai", {**CHAT, "usage": {**CHAT["usage"], **said}}) == Usage(input=10, output=2, reported_cost=told)
    usage = {**RESPONSE["usage"], **said}
    assert used("responses", {**RESPONSE, "usage": usage}) == Usage(input=10, output=2, reported_cost=told)
    picture = {"created": 1, "data": [{"b64_json": "aGk="}], "usage": said}
    counted = [event for event in images.read_reply(msgspec.json.encode(picture)) if isinstance(event, UsageReported)]
    assert [event.usage for event in counted] == ([] if told is None else [Usage(images=1, reported_cost=told)])


def test_pages_that_anthropic_fetched_are_counted() -> None:
    calls = {"web_search_requests": 1, "web_fetch_requests": 2}
    answer = {**MESSAGE, "usage": {**MESSAGE_USAGE, "server_tool_use": calls}}
    assert used("anthropic", answer) == Usage(input=10, output=2, web_searches=1, tool_calls={"web_fetch": 2})


@pytest.mark.parametrize(
    ("dialect", "data", "found"),
    [
        ("responses", {"type": "code_interpreter", "container": {"type": "auto"}}, [("code_interpreter", 1)]),
        ("responses", {"type": "x_search"}, [("x_search", 10)]),
        ("openai", {"type": "x_search"}, [("x_search", 10)]),
        ("responses", {"type": "file_search", "vector_store_ids": ["v"]}, [("file_search", 10)]),
        ("responses", {"type": "image_generation"}, [("image_generation", 10)]),
        ("responses", {"type": "shell", "environment": {"type": "container_auto"}}, [("shell", 10)]),
        ("responses", {"type": "shell"}, []),
        ("responses", {"type": "mcp", "server_label": "x"}, []),
        ("anthropic", {"type": "web_fetch_20250910", "name": "web_fetch", "max_uses": 2}, [("web_fetch", 2)]),
        ("anthropic", {"type": "code_execution_20250825", "name": "code_execution"}, [("code_execution", 1)]),
        ("anthropic", {"type": "bash_20250124", "name": "bash"}, []),
        ("google", {"googleMaps": {}}, [("google_maps", 10)]),
        ("google", {"urlContext": {}}, []),
        ("google", {"codeExecution": {}}, []),
    ],
)
def test_tools_that_a_provider_is_paid_for(dialect: str, data: dict[str, Any], found: list[tuple[str, int]]) -> None:
    chat = Chat(model="m", messages=[], tools=[OpaqueTool(dialect=dialect, data=data)])
    assert [(name, most) for _, name, most in hosted_tools(chat)] == found

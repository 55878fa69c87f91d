"""Odd counts never cost the answer beside them: a value that is no count is left out, and the gateway estimates."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from apps.gateway.canonical.events import Failed, ResultsGiven, UsageReported
from apps.gateway.dialects.chat.anthropic import wire as anthropic
from apps.gateway.dialects.chat.bedrock import wire as bedrock
from apps.gateway.dialects.chat.cohere import wire as cohere
from apps.gateway.dialects.chat.google import wire as google
from apps.gateway.dialects.chat.openai import wire as openai
from apps.gateway.dialects.chat.responses import wire as responses
from apps.gateway.dialects.reading.answers import count_at, read_count
from apps.gateway.dialects.values import moderations, rerank
from apps.gateway.dialects.values.embeddings import provider as embeddings
from apps.kernel.usage import Usage

ODD: list[Any] = [None, "12", "many", -5, 10**12, 10**30, True, [12], {"value": 12}]
VECTORS = {"data": [{"embedding": [0.5], "index": 0}]}
RANKING = [{"index": 0, "relevance_score": 0.5}]
JUDGEMENT = {"flagged": False, "categories": {"hate": False}, "category_scores": {"hate": 0.1}}
# An answer of each format with a count in its place, and what the count is of.
ANSWERS: dict[str, Any] = {
    "embeddings.openai": lambda count: {**VECTORS, "usage": {"prompt_tokens": count, "total_tokens": count}},
    "embeddings.jina": lambda count: {**VECTORS, "usage": {"prompt_tokens": count, "total_tokens": count}},
    "embeddings.cohere": lambda count: {
        "embeddings": {"float": [[0.5]]},
        "meta": {"billed_units": {"input_tokens": count}},
    },
    "embeddings.google": lambda count: {
        "embeddings": [{"values": [0.5]}],
        "usageMetadata": {"promptTokenCount": count},
    },
    "embeddings.titan": lambda count: {"embedding": [0.5], "inputTextTokenCount": count},
    "embeddings.vertex": lambda count: {
        "predictions": [{"embeddings": {"values": [0.5], "statistics": {"token_count": count}}}]
    },
    "rerank.jina": lambda count: {"results": RANKING, "usage": {"total_tokens": count}},
    "rerank.voyage": lambda count: {"data": RANKING, "usage": {"total_tokens": count}},
    "rerank.cohere": lambda count: {"results": RANKING, "meta": {"billed_units": {"search_units": count}}},
    "rerank.cohere_tokens": lambda count: {"results": RANKING, "meta": {"billed_units": {"input_tokens": count}}},
    "rerank.bedrock": lambda count: {"results": RANKING, "meta": {"billed_units": {"search_units": count}}},
    "moderations.openai": lambda count: {"results": [JUDGEMENT], "usage": {"prompt_tokens": count}},
    "moderations.mistral": lambda count: {"results": [JUDGEMENT], "usage": {"prompt_tokens": count}},
}


HALVES: dict[str, Any] = {
    "embeddings": embeddings.PROVIDERS,
    "rerank": rerank.PROVIDERS,
    "moderations": moderations.PROVIDERS,
}


def read(name: str, answer: Any) -> list[Any]:
    """Return the events of an answer of `task.format`."""
    task, wire_format = name.split(".")
    half = HALVES[task][wire_format]
    return list(half.read_reply(json.dumps(answer).encode()))


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("name", ANSWERS)
def test_an_odd_count_leaves_the_answer_and_is_none(name: str, odd: Any) -> None:
    kinds = [type(event) for event in read(name, ANSWERS[name](odd))]
    assert ResultsGiven in kinds
    assert Failed not in kinds
    assert UsageReported not in kinds


@pytest.mark.parametrize("odd", [None, "none", 7, [], {}], ids=repr)
@pytest.mark.parametrize("name", [name for name in ANSWERS if name not in ("embeddings.titan", "embeddings.vertex")])
def test_odd_usage_as_a_whole_leaves_the_answer(name: str, odd: Any) -> None:
    answer = ANSWERS[name](3)
    for field in ("usage", "meta", "usageMetadata"):
        if field in answer:
            answer[field] = odd
    kinds = [type(event) for event in read(name, answer)]
    assert ResultsGiven in kinds
    assert UsageReported not in kinds


@pytest.mark.parametrize("count", [12, 12.0, 12.4])
@pytest.mark.parametrize("name", ANSWERS)
def test_a_count_with_a_point_is_one(name: str, count: float) -> None:
    (counted,) = [event.usage for event in read(name, ANSWERS[name](count)) if isinstance(event, UsageReported)]
    assert (counted.input or counted.search_units, counted.estimated) == (12, False)


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_no_chat_format_takes_an_odd_count_for_one(odd: Any) -> None:
    assert read_count(odd) == 0
    assert count_at({"usage": odd}, "usage", "input") == 0
    assert anthropic.read_usage({"input_tokens": odd, "output_tokens": odd}) is None
    assert bedrock.read_usage({"inputTokens": odd, "outputTokens": odd}) is None
    assert cohere.read_usage({"billed_units": {"input_tokens": odd, "output_tokens": odd}}) is None
    assert google.read_usage({"promptTokenCount": odd, "candidatesTokenCount": odd}, 0) is None
    assert openai.read_usage({"prompt_tokens": odd, "completion_tokens": odd}) is None


def test_nothing_counted_on_both_sides_is_nothing() -> None:
    assert openai.read_usage({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}) == Usage()
    assert openai.read_usage({"total_tokens": 0}) is None


# --- one odd count among others

FRACTION = 12.4
# How each format says that it read ten tokens, three of them from a cache, and wrote two.
CHATS: dict[str, tuple[Any, dict[str, Any], str, str]] = {
    "openai": (
        openai.read_usage,
        {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}},
        "prompt_tokens",
        "completion_tokens",
    ),
    "responses": (
        lambda reported: responses.read_usage(reported, 0),
        {"input_tokens": 10, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 3}},
        "input_tokens",
        "output_tokens",
    ),
    "anthropic": (
        anthropic.read_usage,
        {"input_tokens": 7, "output_tokens": 2, "cache_read_input_tokens": 3},
        "input_tokens",
        "output_tokens",
    ),
    "bedrock": (
        bedrock.read_usage,
        {"inputTokens": 7, "outputTokens": 2, "cacheReadInputTokens": 3},
        "inputTokens",
        "outputTokens",
    ),
    "google": (
        lambda reported: google.read_usage(reported, 0),
        {"promptTokenCount": 10, "candidatesTokenCount": 2, "cachedContentTokenCount": 3},
        "promptTokenCount",
        "candidatesTokenCount",
    ),
}
WHOLE = Usage(input=7, cache_read=3, output=2)


@pytest.mark.parametrize("name", CHATS)
@pytest.mark.parametrize("odd", [*ODD, FRACTION], ids=repr)
def test_one_odd_count_leaves_the_others_and_marks_them_as_an_estimate(name: str, odd: Any) -> None:
    read_usage, reported, _, written = CHATS[name]
    assert read_usage(reported) == WHOLE
    assert read_usage({**reported, written: odd}) == replace(WHOLE, output=12 if odd == FRACTION else 0, estimated=True)


@pytest.mark.parametrize("name", CHATS)
def test_null_of_what_is_not_always_counted_and_whole_numbers_with_a_point_are_no_odd_counts(name: str) -> None:
    read_usage, reported, prompt, written = CHATS[name]
    assert read_usage({**reported, prompt: float(reported[prompt]), written: 2.0}) == WHOLE
    uncached = next(key for key in reported if "cache" in key.lower() or "details" in key)
    for nothing in (None, {}, {"cached_tokens": None, "audio_tokens": None}):
        if isinstance(nothing, dict) and "details" not in uncached:
            continue
        usage = read_usage({**reported, uncached: nothing})
        assert (usage.cache_read, usage.output, usage.estimated) == (0, 2, False)


@pytest.mark.parametrize(
    ("read_usage", "reported"),
    [
        (
            openai.read_usage,
            {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": -1}},
        ),
        (openai.read_usage, {"prompt_tokens": 10, "completion_tokens": 2, "reasoning_tokens": "1"}),
        (
            openai.read_usage,
            {"prompt_tokens": 10, "completion_tokens": 2, "server_tool_use": {"web_search_requests": "1"}},
        ),
        (
            anthropic.read_usage,
            {"input_tokens": 10, "output_tokens": 2, "server_tool_use": {"web_search_requests": -1}},
        ),
        (
            anthropic.read_usage,
            {"input_tokens": 10, "output_tokens": 2, "cache_creation": {"ephemeral_1h_input_tokens": "1"}},
        ),
        (
            bedrock.read_usage,
            {"inputTokens": 10, "outputTokens": 2, "cacheDetails": [{"ttl": "1h", "inputTokens": "1"}]},
        ),
        (
            lambda reported: google.read_usage(reported, 0),
            {
                "promptTokenCount": 10,
                "candidatesTokenCount": 2,
                "promptTokensDetails": [{"modality": "AUDIO", "tokenCount": "1"}],
            },
        ),
        (cohere.read_usage, {"billed_units": {"input_tokens": 10, "output_tokens": 2}, "cached_tokens": True}),
    ],
)
def test_an_odd_count_inside_marks_an_estimate(read_usage: Any, reported: dict[str, Any]) -> None:
    assert read_usage(reported) == Usage(input=10, output=2, estimated=True)

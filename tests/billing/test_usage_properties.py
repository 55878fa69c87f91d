"""For all counts that a provider may report: no class and no bill is below 0, and the classes add up to its totals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.billing.pricing import cost_of
from apps.gateway.dialects.chat.anthropic import wire as anthropic
from apps.gateway.dialects.chat.bedrock import wire as bedrock
from apps.gateway.dialects.chat.cohere import wire as cohere
from apps.gateway.dialects.chat.google import wire as google
from apps.gateway.dialects.chat.openai import wire as openai
from apps.gateway.dialects.chat.responses import wire as responses
from apps.kernel.prices import PriceCard
from tests.billing.test_pricing import TOKENS, cards, counts

junk = st.none() | st.booleans() | st.text(max_size=3) | st.floats() | st.integers(-(10**18), 10**18) | counts
READERS = {
    "openai": (
        openai.read_usage,
        ("prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens", "prompt_cache_hit_tokens"),
        ("prompt_tokens_details", "completion_tokens_details", "server_tool_use"),
        ("cached_tokens", "audio_tokens", "image_tokens", "reasoning_tokens", "cache_write_tokens"),
    ),
    "responses": (
        lambda reported: responses.read_usage(reported, 0),
        ("input_tokens", "output_tokens", "total_tokens"),
        ("input_tokens_details", "output_tokens_details"),
        ("cached_tokens", "reasoning_tokens"),
    ),
    "anthropic": (
        anthropic.read_usage,
        ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"),
        ("cache_creation", "output_tokens_details", "server_tool_use"),
        ("ephemeral_1h_input_tokens", "ephemeral_5m_input_tokens", "thinking_tokens", "web_search_requests"),
    ),
    "bedrock": (
        bedrock.read_usage,
        ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheWriteInputTokens"),
        ("cacheDetails",),
        ("inputTokens", "ttl"),
    ),
    "google": (
        lambda reported: google.read_usage(reported, 0),
        (
            *("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "toolUsePromptTokenCount"),
            "cachedContentTokenCount",
        ),
        ("promptTokensDetails", "cacheTokensDetails", "candidatesTokensDetails"),
        ("modality", "tokenCount"),
    ),
    "cohere": (
        cohere.read_usage,
        ("cached_tokens",),
        ("billed_units", "tokens"),
        ("input_tokens", "output_tokens"),
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_no_provider_can_report_its_way_below_nothing(name: str) -> None:
    """Negative, absurd, more in the parts than in the whole, of another type: no class and no cost is below 0."""
    read, plain, nested, inside = READERS[name]
    record = st.dictionaries(st.sampled_from(inside), junk | st.sampled_from(["AUDIO", "IMAGE", "1h"]), max_size=5)
    reported = st.fixed_dictionaries(
        {},
        optional={**dict.fromkeys(plain, junk), **dict.fromkeys(nested, junk | record | st.lists(record, max_size=3))},
    )

    @given(reported, cards)
    def check(said: dict[str, Any], card: PriceCard) -> None:
        usage = read(said)
        if usage is not None:
            assert min(getattr(usage, kind) for kind in TOKENS) >= 0
            assert cost_of(usage, card).total >= 0

    check()


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_the_classes_add_up_to_what_openai_says_it_counted(
    prompt: int, cached: int, written: int, thought: int
) -> None:
    said = {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "prompt_tokens_details": {"cached_tokens": min(cached, prompt)},
        "completion_tokens_details": {"reasoning_tokens": thought},
    }
    usage = openai.read_usage(said)
    if usage is not None:
        assert (usage.prompt_tokens, usage.completion_tokens) == (prompt, written)

"""Usage as OpenAI-alikes report it, in classes that share no token."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.gateway.canonical.events import UsageReported
from apps.gateway.dialects.chat import openai
from apps.kernel.usage import Usage


@pytest.mark.parametrize(
    ("reported", "usage"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 4}, Usage(input=10, output=4)),
        # cached and written tokens are part of the prompt
        (
            {"prompt_tokens": 10, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 6}},
            Usage(input=4, cache_read=6, output=4),
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 4,
                "prompt_tokens_details": {"cached_tokens": 6, "cache_write_tokens": 3},
            },
            Usage(input=1, cache_read=6, cache_write=3, output=4),
        ),
        # ... unless that cannot be
        (
            {"prompt_tokens": 10, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 11}},
            Usage(input=10, cache_read=11, output=4),
        ),
        ({"prompt_tokens": 10, "cache_creation_input_tokens": 90}, Usage(input=10, cache_write=90)),
        # ... or they are counted both as read and as written
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 1,
                "prompt_tokens_details": {"cached_tokens": 9, "cache_write_tokens": 9},
            },
            Usage(input=0, cache_read=9, cache_write=1, output=1),
        ),
        (
            {"prompt_tokens": 10, "prompt_cache_hit_tokens": 6, "prompt_cache_miss_tokens": 4, "completion_tokens": 1},
            Usage(input=4, cache_read=6, output=1),
        ),
        ({"prompt_tokens": 10, "cached_tokens": 6}, Usage(input=4, cache_read=6)),
        ({"prompt_tokens": 10, "num_cached_tokens": 6}, Usage(input=4, cache_read=6)),
        # kinds within the prompt and the completion
        (
            {"prompt_tokens": 10, "prompt_tokens_details": {"audio_tokens": 2, "image_tokens": 3, "cached_tokens": 4}},
            Usage(input=1, cache_read=4, audio_input=2, image_input=3),
        ),
        (
            {"prompt_tokens": 10, "prompt_tokens_details": {"image_tokens": 9, "cached_tokens": 4}},
            Usage(input=0, cache_read=4, image_input=6),
        ),
        (
            {
                "prompt_tokens": 1,
                "completion_tokens": 20,
                "completion_tokens_details": {"reasoning_tokens": 5, "audio_tokens": 6, "image_tokens": 7},
            },
            Usage(input=1, output=2, reasoning=5, audio_output=6, image_output=7),
        ),
        # thinking is part of the completion
        (
            {
                "prompt_tokens": 43,
                "completion_tokens": 10,
                "total_tokens": 53,
                "completion_tokens_details": {"reasoning_tokens": 11},
            },
            Usage(input=43, output=0, reasoning=10),
        ),
        # ... unless the total says otherwise
        (
            {
                "prompt_tokens": 43,
                "completion_tokens": 10,
                "total_tokens": 60,
                "completion_tokens_details": {"reasoning_tokens": 7},
            },
            Usage(input=43, output=10, reasoning=7),
        ),
        # nonsense
        (
            {
                "prompt_tokens": 5.0,
                "completion_tokens": -1,
                "prompt_tokens_details": None,
                "completion_tokens_details": {"reasoning_tokens": True},
            },
            Usage(input=5, estimated=True),
        ),
        # thinking beside both the completion and the total, and searches that are paid one by one
        (
            {
                "prompt_tokens": 21,
                "completion_tokens": 40,
                "total_tokens": 61,
                "citation_tokens": 7,
                "num_search_queries": 18,
                "reasoning_tokens": 30,
            },
            Usage(input=21, output=40, reasoning=30, web_searches=18),
        ),
        (
            {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7, "search_context_size": "low"},
            Usage(input=3, output=4, web_searches=1, search_size="low"),
        ),
        ({"prompt_tokens": 9, "completion_tokens": 1, "cached_tokens": 5}, Usage(input=4, cache_read=5, output=1)),
        ({"prompt_tokens": 10**12, "completion_tokens": 2}, Usage(output=2, estimated=True)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, Usage()),
        ({}, None),
        (None, None),
        ([1], None),
    ],
)
def test_counts_become_disjoint_classes(reported: Any, usage: Usage | None) -> None:
    body = json.dumps({"id": "x", "choices": [], "usage": reported}).encode()
    events = list(openai.read_reply(body))
    assert [event.usage for event in events if isinstance(event, UsageReported)] == ([] if usage is None else [usage])

"""Google generateContent: client side and provider side of the dialect."""

from __future__ import annotations

from typing import Final

from apps.gateway.dialects import ClientDialect, ProviderDialect, TokenCounter
from apps.gateway.dialects.adapting.unsupported_fields import all_members
from apps.gateway.dialects.chat.google.client import error_for_clients, write_error
from apps.gateway.dialects.chat.google.client.read_request import (
    logged_choice,
    logged_request,
    logged_results,
    read_request,
    tool_path,
)
from apps.gateway.dialects.chat.google.client.write_reply import write_events, write_reply
from apps.gateway.dialects.chat.google.provider.read_answer import read_events, read_reply
from apps.gateway.dialects.chat.google.provider.write_request import count_request, path, read_count, write_request
from apps.gateway.dialects.chat.google.wire import FRAMING, NAME, Capabilities, read_failure

CLIENT: Final = ClientDialect(
    read_request=read_request,
    write_reply=write_reply,
    write_events=write_events,
    write_error=write_error,
    client_error=error_for_clients,
    logged_request=logged_request,
    logged_choice=logged_choice,
    logged_results=logged_results,
    field_names={
        "max_tokens": "generationConfig.maxOutputTokens",
        "temperature": "generationConfig.temperature",
        "top_p": "generationConfig.topP",
        "top_k": "generationConfig.topK",
        "n": "generationConfig.candidateCount",
        "stop": "generationConfig.stopSequences",
        "seed": "generationConfig.seed",
        "presence_penalty": "generationConfig.presencePenalty",
        "frequency_penalty": "generationConfig.frequencyPenalty",
        "logprobs": "generationConfig.responseLogprobs",
        "top_logprobs": "generationConfig.logprobs",
        "response_format": "generationConfig.responseMimeType",
        "modalities": "generationConfig.responseModalities",
        "image_config": "generationConfig.imageConfig",
        "reasoning": "generationConfig.thinkingConfig",
        "reasoning.max_tokens": "generationConfig.thinkingConfig.thinkingBudget",
        "reasoning_effort": "generationConfig.thinkingConfig.thinkingLevel",
        "service_tier": "serviceTier",
        "tool_choice": "toolConfig",
        "parallel_tool_calls": "toolConfig",
        "web_search": "tools",
        "messages": "contents",
    },
    counts_messages_alike=False,
    content_field="parts",
    instructions_field="systemInstruction",
    tool_path=tool_path,
    partly_read_fields={name: all_members(name) for name in ("generationConfig", "toolConfig")},
    essential_fields=frozenset({"cachedContent"}),
)
PROVIDER: Final = ProviderDialect(
    name=NAME,
    framing=FRAMING,
    path=path,
    write_request=write_request,
    read_reply=read_reply,
    read_events=read_events,
    read_failure=read_failure,
    facts=Capabilities,
    token_counter=TokenCounter(write_request=count_request, read_count=read_count),
    takes_search_with_tools=False,
)

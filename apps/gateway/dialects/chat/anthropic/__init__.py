"""Anthropic Messages: client side and provider side of the dialect."""

from __future__ import annotations

from typing import Final

from apps.gateway.dialects import ClientDialect, ProviderDialect, TokenCounter
from apps.gateway.dialects.chat.anthropic.client.read_request import (
    logged_choice,
    logged_request,
    logged_results,
    read_request,
    unread_output_config,
)
from apps.gateway.dialects.chat.anthropic.client.write_reply import write_events, write_reply
from apps.gateway.dialects.chat.anthropic.provider.read_answer import read_events, read_reply
from apps.gateway.dialects.chat.anthropic.provider.write_messages import signature_format
from apps.gateway.dialects.chat.anthropic.provider.write_request import (
    count_request,
    headers,
    path,
    read_count,
    write_request,
)
from apps.gateway.dialects.chat.anthropic.wire import FRAMING, NAME, Capabilities, read_failure, write_error
from apps.kernel.ids import OF_ANTHROPIC

CLIENT: Final = ClientDialect(
    read_request=read_request,
    write_reply=write_reply,
    write_events=write_events,
    write_error=write_error,
    request_id_header=OF_ANTHROPIC,
    logged_request=logged_request,
    logged_choice=logged_choice,
    logged_results=logged_results,
    field_names={
        "stop": "stop_sequences",
        "user": "metadata.user_id",
        "reasoning": "thinking",
        "reasoning.max_tokens": "thinking.budget_tokens",
        "reasoning_effort": "thinking",
        "effort": "output_config.effort",
        "response_format": "output_config.format",
        "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
        "web_search": "tools",
        "betas": "anthropic-beta",
    },
    counts_messages_alike=False,
    partly_read_fields={"output_config": unread_output_config},
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
    headers=headers,
    signature_format=signature_format,
    token_counter=TokenCounter(write_request=count_request, read_count=read_count),
    has_logprobs=False,
    thinks_when_asked=True,
)

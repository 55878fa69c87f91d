"""Amazon Bedrock Converse: client side and provider side of the dialect."""

from __future__ import annotations

from typing import Final

from apps.gateway.dialects import ClientDialect, ProviderDialect, TokenCounter
from apps.gateway.dialects.adapting.unsupported_fields import all_members
from apps.gateway.dialects.chat.bedrock.client.read_request import (
    logged_choice,
    logged_request,
    logged_results,
    read_request,
    tool_path,
    unread_model_fields,
)
from apps.gateway.dialects.chat.bedrock.client.write_reply import write_events, write_reply
from apps.gateway.dialects.chat.bedrock.provider.read_answer import read_events, read_reply
from apps.gateway.dialects.chat.bedrock.provider.write_request import (
    count_request,
    headers,
    path,
    read_count,
    signature_format,
    write_request,
)
from apps.gateway.dialects.chat.bedrock.wire import (
    FRAMING,
    NAME,
    REQUEST_ID,
    STREAM_TYPE,
    Capabilities,
    error_for_clients,
    read_failure,
    write_error,
)

CLIENT: Final = ClientDialect(
    read_request=read_request,
    write_reply=write_reply,
    write_events=write_events,
    write_error=write_error,
    client_error=error_for_clients,
    request_id_header=REQUEST_ID,
    stream_type=STREAM_TYPE,
    logged_request=logged_request,
    logged_choice=logged_choice,
    logged_results=logged_results,
    field_names={
        "max_tokens": "inferenceConfig.maxTokens",
        "temperature": "inferenceConfig.temperature",
        "top_p": "inferenceConfig.topP",
        "stop": "inferenceConfig.stopSequences",
        "top_k": "additionalModelRequestFields.top_k",
        "reasoning": "additionalModelRequestFields.thinking",
        "reasoning.max_tokens": "additionalModelRequestFields.thinking.budget_tokens",
        "reasoning_effort": "additionalModelRequestFields.thinking",
        "effort": "outputConfig.effort",
        "betas": "additionalModelRequestFields.anthropic_beta",
        "parallel_tool_calls": "additionalModelRequestFields.tool_choice",
        "response_format": "outputConfig.textFormat",
        "tool_choice": "toolConfig.toolChoice",
        "metadata": "requestMetadata",
        "service_tier": "serviceTier",
    },
    counts_messages_alike=False,
    instructions_field="system",
    tool_path=tool_path,
    partly_read_fields={
        "additionalModelRequestFields": unread_model_fields,
        **{name: all_members(name) for name in ("inferenceConfig", "toolConfig", "outputConfig")},
    },
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
    takes_media_urls=False,
    has_logprobs=False,
    thinks_when_asked=True,
)

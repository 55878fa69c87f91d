"""OpenAI Responses: client side and provider side of the dialect."""

from __future__ import annotations

from typing import Final

from apps.gateway.dialects import ClientDialect, ProviderDialect, TokenCounter
from apps.gateway.dialects.adapting.unsupported_fields import all_members
from apps.gateway.dialects.chat.openai.wire import write_error
from apps.gateway.dialects.chat.responses.client.read_request import (
    logged_choice,
    logged_request,
    logged_results,
    read_request,
)
from apps.gateway.dialects.chat.responses.client.write_reply import write_events, write_reply
from apps.gateway.dialects.chat.responses.provider.read_answer import read_events, read_reply
from apps.gateway.dialects.chat.responses.provider.write_request import (
    count_request,
    path,
    read_count,
    signature_format,
    write_request,
)
from apps.gateway.dialects.chat.responses.wire import FRAMING, NAME, Capabilities, read_failure

CLIENT: Final = ClientDialect(
    read_request=read_request,
    write_reply=write_reply,
    write_events=write_events,
    write_error=write_error,
    logged_request=logged_request,
    logged_choice=logged_choice,
    logged_results=logged_results,
    field_names={
        "messages": "input",
        "max_tokens": "max_output_tokens",
        "reasoning_effort": "reasoning.effort",
        "response_format": "text.format",
        "verbosity": "text.verbosity",
        "logprobs": "include",
        "web_search": "tools",
    },
    counts_messages_alike=False,
    has_call_items=True,
    partly_read_fields={"text": all_members("text")},
    custom_tool_dialects=frozenset({NAME}),
    has_optional_search=True,
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
    signature_format=signature_format,
    token_counter=TokenCounter(write_request=count_request, read_count=read_count),
)

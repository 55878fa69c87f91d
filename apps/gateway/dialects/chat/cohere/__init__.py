"""Cohere Chat v2: client side and provider side of the dialect."""

from __future__ import annotations

from typing import Final

from apps.gateway.dialects import ClientDialect, ProviderDialect
from apps.gateway.dialects.chat.cohere.client.read_request import (
    logged_choice,
    logged_request,
    logged_results,
    read_request,
)
from apps.gateway.dialects.chat.cohere.client.write_reply import write_events, write_reply
from apps.gateway.dialects.chat.cohere.provider.read_answer import read_events, read_reply
from apps.gateway.dialects.chat.cohere.provider.write_request import path, write_request
from apps.gateway.dialects.chat.cohere.wire import FRAMING, NAME, Capabilities, read_failure
from apps.gateway.dialects.chat.openai.wire import write_error

CLIENT: Final = ClientDialect(
    read_request=read_request,
    write_reply=write_reply,
    write_events=write_events,
    # Clients read the `message`, which this gateway's errors in OpenAI's format have as well.
    write_error=write_error,
    logged_request=logged_request,
    logged_choice=logged_choice,
    logged_results=logged_results,
    field_names={
        "top_p": "p",
        "top_k": "k",
        "stop": "stop_sequences",
        "reasoning": "thinking",
        "reasoning.max_tokens": "thinking.token_budget",
        "reasoning_effort": "thinking",
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
)

"""Ollama's API: the client side of the dialect, for `/api/chat`. Providers that run Ollama are called in OpenAI's."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from apps.gateway.dialects.adapting.unsupported_fields import all_members
from apps.gateway.dialects.chat import openai
from apps.gateway.dialects.chat.google.client import error_for_clients
from apps.gateway.dialects.chat.ollama.read_request import read_request
from apps.gateway.dialects.chat.ollama.wire import NDJSON, write_error
from apps.gateway.dialects.chat.ollama.write_reply import write_events, write_reply

# The log has the conversation in OpenAI's form, from which this format differs in small things.
CLIENT: Final = replace(
    openai.CLIENT,
    read_request=read_request,
    write_reply=write_reply,
    write_events=write_events,
    write_error=write_error,
    client_error=error_for_clients,
    stream_type=NDJSON,
    field_names={
        "max_tokens": "options.num_predict",
        "temperature": "options.temperature",
        "top_p": "options.top_p",
        "top_k": "options.top_k",
        "seed": "options.seed",
        "stop": "options.stop",
        "presence_penalty": "options.presence_penalty",
        "frequency_penalty": "options.frequency_penalty",
        "response_format": "format",
        "reasoning": "think",
        "reasoning.max_tokens": "think",
        "reasoning_effort": "think",
    },
    thinking_field="thinking",
    partly_read_fields={"options": all_members("options")},
    custom_tool_dialects=None,
)

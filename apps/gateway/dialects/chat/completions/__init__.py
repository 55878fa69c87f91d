"""OpenAI's legacy completions: the client side of the dialect, for clients that send a prompt in place of messages.

Each prompt is a chat of one message, so every chat provider can answer it; the log keeps the prompts as messages.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from apps.gateway.dialects.chat import openai
from apps.gateway.dialects.chat.completions.read_request import read_request
from apps.gateway.dialects.chat.completions.write_reply import write_events, write_reply

CLIENT: Final = replace(
    openai.CLIENT,
    read_request=read_request,
    write_reply=write_reply,
    write_events=write_events,
    field_names={"messages": "prompt", "top_logprobs": "logprobs"},
    custom_tool_dialects=None,
)

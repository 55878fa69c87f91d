"""OpenAI Chat Completions: client side and provider side of the dialect."""

from __future__ import annotations

from typing import Final

from apps.gateway.dialects import ClientDialect, ProviderDialect
from apps.gateway.dialects.chat.openai.client.read_request import (
    logged_choice,
    logged_request,
    logged_results,
    read_request,
)
from apps.gateway.dialects.chat.openai.client.write_reply import write_events, write_reply
from apps.gateway.dialects.chat.openai.provider.read_answer import read_events, read_reply
from apps.gateway.dialects.chat.openai.provider.write_request import path, write_request
from apps.gateway.dialects.chat.openai.wire import FRAMING, NAME, Facts, read_failure, write_error

CLIENT: Final = ClientDialect(
    read_request=read_request,
    write_reply=write_reply,
    write_events=write_events,
    write_error=write_error,
    logged_request=logged_request,
    logged_choice=logged_choice,
    logged_results=logged_results,
    custom_tool_dialects=frozenset({NAME, "responses"}),
)
PROVIDER: Final = ProviderDialect(
    name=NAME,
    framing=FRAMING,
    path=path,
    write_request=write_request,
    read_reply=read_reply,
    read_events=read_events,
    read_failure=read_failure,
    facts=Facts,
    takes_several_answers=True,
)

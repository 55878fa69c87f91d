"""Cohere Chat v2: the provider side of the dialect; it has no client side."""

from __future__ import annotations

from typing import Final

from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.chat.cohere.provider.capabilities import Capabilities
from apps.gateway.dialects.chat.cohere.provider.read_answer import read_events, read_reply
from apps.gateway.dialects.chat.cohere.provider.write_request import path, write_request
from apps.gateway.dialects.chat.cohere.wire import FRAMING, NAME, read_failure

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

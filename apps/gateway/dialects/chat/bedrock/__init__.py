"""Amazon Bedrock Converse: the provider side of the dialect; it has no client side."""

from __future__ import annotations

from typing import Final

from apps.gateway.dialects import ProviderDialect, TokenCounter
from apps.gateway.dialects.chat.bedrock.provider.capabilities import Capabilities
from apps.gateway.dialects.chat.bedrock.provider.read_answer import read_events, read_reply
from apps.gateway.dialects.chat.bedrock.provider.write_request import (
    count_request,
    headers,
    path,
    read_count,
    signature_format,
    write_request,
)
from apps.gateway.dialects.chat.bedrock.wire import FRAMING, NAME, read_failure

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

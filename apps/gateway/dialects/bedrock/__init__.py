"""Amazon Bedrock Converse: the provider side of the dialect; it has no client side. Pure functions."""

from __future__ import annotations

from apps.gateway.dialects.bedrock.provider.count_tokens import count_request, read_count
from apps.gateway.dialects.bedrock.provider.failures import read_failure
from apps.gateway.dialects.bedrock.provider.flavor import Flavor as Facts
from apps.gateway.dialects.bedrock.provider.read_answer import read_events, read_reply
from apps.gateway.dialects.bedrock.provider.write_request import headers, path, signature_format, write_request
from apps.gateway.dialects.bedrock.shared.wire import FRAMING, MEDIA_URLS, NAME, THINKS_WHEN_ASKED

__all__ = [
    "FRAMING",
    "LOGPROBS",
    "MEDIA_URLS",
    "NAME",
    "THINKS_WHEN_ASKED",
    "Facts",
    "count_request",
    "headers",
    "path",
    "read_count",
    "read_events",
    "read_failure",
    "read_reply",
    "signature_format",
    "write_request",
]

# The format cannot ask for the probabilities of tokens.
LOGPROBS = False

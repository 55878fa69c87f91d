"""Cohere's reranking on Bedrock, provider side: `invoke` with Cohere's fields and a version; nothing need be
counted.

Sources: docs.aws.amazon.com/bedrock/latest/userguide/rerank-pricing.html and, for the version, what Bedrock says to
requests of Cohere's SDK without it (read 2026-11-23).
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects.chat.bedrock.wire import encode, read_failure
from apps.gateway.dialects.values.rerank.provider.cohere import PROVIDER as COHERE
from apps.gateway.dialects.values.rerank.provider.cohere import fields_of

_VERSION: Final = 2


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return f"/model/{quote(target.model_name, safe='')}/invoke"


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    return encode({**fields_of(chat, target), "api_version": _VERSION})


PROVIDER: Final = replace(COHERE, name="bedrock", path=path, write_request=write_request, read_failure=read_failure)

"""Anthropic Messages on Azure, provider side: the same format at an address of its own.

Knows how the address of an Azure resource for Anthropic's models follows from the one for OpenAI's. Must never know a
resource by name.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit, urlunsplit

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects.anthropic import (
    FRAMING,
    THINKS_WHEN_ASKED,
    Facts,
    count_request,
    headers,
    path,
    read_count,
    read_events,
    read_failure,
    read_reply,
    signature_format,
    write_request,
)

__all__ = [
    "FRAMING",
    "LOGPROBS",
    "NAME",
    "THINKS_WHEN_ASKED",
    "Facts",
    "count_request",
    "count_url",
    "headers",
    "path",
    "read_count",
    "read_events",
    "read_failure",
    "read_reply",
    "signature_format",
    "url",
    "write_request",
]

# The format cannot ask for the probabilities of tokens.
LOGPROBS = False

NAME: Final = "azure_anthropic"

_OPENAIS_PATH, _ANTHROPICS_PATH = "/openai/v1", "/anthropic/v1"
_OPENAIS_HOST, _ANTHROPICS_HOST = ".openai.azure.com", ".services.ai.azure.com"


def url(base_url: str, chat: Chat, target: Target) -> str:
    """Return where a request goes."""
    return count_url(base_url, path(chat, target))


def count_url(base_url: str, place: str) -> str:
    """Return where something of Anthropic's is: beside OpenAI's models of the same resource, or below an address that
    is not of that kind."""
    parts = urlsplit(base_url)
    name, colon, port = parts.netloc.partition(":")
    if name.lower().endswith(_OPENAIS_HOST):
        name = name[: -len(_OPENAIS_HOST)] + _ANTHROPICS_HOST
    above = parts.path
    if above.endswith(_OPENAIS_PATH):
        above = above[: -len(_OPENAIS_PATH)] + _ANTHROPICS_PATH
    return urlunsplit(parts._replace(netloc=f"{name}{colon}{port}", path=above)) + place

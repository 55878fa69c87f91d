"""Anthropic Messages on Azure, provider side: the same format at an address of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects import TokenCounter
from apps.gateway.dialects.chat.anthropic import PROVIDER as ANTHROPIC
from apps.gateway.dialects.chat.anthropic.provider.write_request import count_request, path, read_count

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


PROVIDER: Final = replace(
    ANTHROPIC,
    name="azure_anthropic",
    url=url,
    token_counter=TokenCounter(write_request=count_request, read_count=read_count, url=count_url),
)

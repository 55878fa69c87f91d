"""Anthropic Messages on Vertex AI, provider side: the model in the path, the version in the body."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import msgspec

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects import TokenCounter
from apps.gateway.dialects.chat.anthropic import PROVIDER as ANTHROPIC
from apps.gateway.dialects.chat.anthropic.provider import write_request as anthropic_request
from apps.gateway.dialects.chat.anthropic.wire import encode
from apps.gateway.dialects.chat.vertex import model_path
from apps.gateway.dialects.chat.vertex import url_of_path as count_url

VERSION: Final = "vertex-2023-10-16"
# The name that stands where a model's would when tokens are counted; which model is meant, the body says then.
_COUNTER = "count-tokens"
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL, which ends with project and location."""
    return model_path("anthropic", target.model_name, "streamRawPredict" if chat.stream else "rawPredict")


def url(base_url: str, chat: Chat, target: Target) -> str:
    """Return where the request goes."""
    return count_url(base_url, path(chat, target))


def headers(chat: Chat, target: Target) -> dict[str, str]:
    """Return the previews that the client asks for: as a header, for in the body alone they do not count."""
    return {name: value for name, value in ANTHROPIC.headers(chat, target).items() if name == "anthropic-beta"}


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request. Raises InvalidRequest for what cannot be said."""
    wire = _read_fields(ANTHROPIC.write_request(chat, target))
    del wire["model"]
    return encode({"anthropic_version": VERSION, **wire})


def count_request(chat: Chat, target: Target) -> tuple[str, bytes]:
    """Return path and body of the question how many tokens a prompt has. Raises InvalidRequest as `write_request`."""
    _, body = anthropic_request.count_request(chat, target)
    asked = {"anthropic_version": VERSION, **_read_fields(body)}
    return model_path("anthropic", _COUNTER, "rawPredict"), encode(asked)


PROVIDER: Final = replace(
    ANTHROPIC,
    name="vertex_anthropic",
    path=path,
    url=url,
    headers=headers,
    write_request=write_request,
    token_counter=TokenCounter(write_request=count_request, read_count=anthropic_request.read_count, url=count_url),
    # Images and documents by address are refused (`URL sources are not supported`): bytes only.
    takes_media_urls=False,
)

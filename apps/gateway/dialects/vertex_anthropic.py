"""Anthropic Messages on Vertex AI, provider side: the model in the path, the version in the body.

Knows what is other than at Anthropic's own address. Must never know a model by name.
"""

from __future__ import annotations

from typing import Final

import msgspec

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects import anthropic
from apps.gateway.dialects.anthropic import Facts, read_count, read_events, read_failure, read_reply, signature_format
from apps.gateway.dialects.anthropic.shared.wire import FRAMING, THINKS_WHEN_ASKED, encode
from apps.gateway.dialects.vertex_address import model_path
from apps.gateway.dialects.vertex_address import url_of_path as count_url

__all__ = [
    "FRAMING",
    "LOGPROBS",
    "MEDIA_URLS",
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

NAME: Final = "vertex_anthropic"
VERSION: Final = "vertex-2023-10-16"
# Images and documents by address are refused (`URL sources are not supported`): bytes only.
MEDIA_URLS: Final = False

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
    return {name: value for name, value in anthropic.headers(chat, target).items() if name == "anthropic-beta"}


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request. Raises InvalidRequest for what cannot be said."""
    wire = _read_fields(anthropic.write_request(chat, target))
    del wire["model"]
    return encode({"anthropic_version": VERSION, **wire})


def count_request(chat: Chat, target: Target) -> tuple[str, bytes]:
    """Return path and body of the question how many tokens a prompt has. Raises InvalidRequest as `write_request`."""
    _, body = anthropic.count_request(chat, target)
    asked = {"anthropic_version": VERSION, **_read_fields(body)}
    return model_path("anthropic", _COUNTER, "rawPredict"), encode(asked)

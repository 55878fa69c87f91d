"""Google generateContent on Vertex AI, provider side: the same format with a few fields of its own.

Here are Vertex AI's addresses too, of Google Cloud's hosts by location, which each format has there.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final
from urllib.parse import quote

import msgspec

from apps.gateway.canonical.chat import Chat, Target, asked_service_tier
from apps.gateway.dialects import TokenCounter
from apps.gateway.dialects.chat.google import PROVIDER as GOOGLE
from apps.gateway.dialects.chat.google.provider.write_request import read_count, write_fields
from apps.gateway.dialects.chat.google.wire import encode
from apps.gateway.dialects.reading.fields import Record

# A base URL as it comes of the pattern `https://{location}-aiplatform.googleapis.com/…` for locations that are not a
# region of Google's and have another host.
_HOST = re.compile(r"^https://(global|us|eu)-aiplatform\.googleapis\.com(?=[/:]|$)")
_HOSTS = {
    "global": "https://aiplatform.googleapis.com",
    "us": "https://aiplatform.us.rep.googleapis.com",
    "eu": "https://aiplatform.eu.rep.googleapis.com",
}


def url_of_path(base_url: str, path: str) -> str:
    """Return the whole URL of a path below a base URL, at the host that serves the base URL's location."""
    return _HOST.sub(lambda found: _HOSTS[found[1]], base_url) + path


def model_path(publisher: str, model_name: str, method: str) -> str:
    """Return the path of a publisher's model; an edition stands behind an `@`."""
    return f"/publishers/{publisher}/models/{quote(model_name, safe='@')}:{method}"


_TIER = "serviceTier"
_PAID_APART = frozenset({"flex", "priority"})
# Fields that only AI Studio has: Vertex AI allows Google's tools beside functions without them.
_UNKNOWN_CONFIG = "includeServerSideToolInvocations"
# The fields of a prompt; any other field is refused when tokens are counted.
_COUNTED = ("systemInstruction", "contents", "tools", "generationConfig")
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL, which ends with project and location."""
    method = "streamGenerateContent?alt=sse" if chat.stream else "generateContent"
    return model_path("google", target.model_name, method)


def url(base_url: str, chat: Chat, target: Target) -> str:
    """Return where the request goes."""
    return url_of_path(base_url, path(chat, target))


def headers(chat: Chat, target: Target) -> dict[str, str]:
    """Return the header that asks for another tier of service than the usual one, which the body cannot."""
    tier = asked_service_tier(chat)
    return {"X-Vertex-AI-LLM-Shared-Request-Type": tier} if tier in _PAID_APART else {}


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request. Raises InvalidRequest (`unsupported_feature`) for what cannot be said."""
    return encode(_fields(chat, target))


def count_request(chat: Chat, target: Target) -> tuple[str, bytes]:
    """Return path and body of the question how many tokens a prompt has. Raises InvalidRequest as `write_request`."""
    wire = _fields(chat, target)
    asked = {name: wire[name] for name in _COUNTED if name in wire}
    return model_path("google", target.model_name, "countTokens"), encode(asked)


def _fields(chat: Chat, target: Target) -> Record:
    """Return the fields of the body: those of AI Studio, except fields that belong elsewhere or are not supported."""
    wire: Record = {**_read_fields(encode(write_fields(chat, target)))}
    wire.pop(_TIER, None)
    if "toolConfig" in wire:
        config = _read_fields(wire["toolConfig"])
        config.pop(_UNKNOWN_CONFIG, None)
        wire["toolConfig"] = config
        if not config:
            del wire["toolConfig"]
    return wire


PROVIDER: Final = replace(
    GOOGLE,
    name="vertex",
    path=path,
    url=url,
    headers=headers,
    write_request=write_request,
    token_counter=TokenCounter(write_request=count_request, read_count=read_count, url=url_of_path),
)

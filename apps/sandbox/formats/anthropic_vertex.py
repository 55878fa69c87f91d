"""Claude at Google Cloud: `POST …/publishers/anthropic/models/<model>:rawPredict`, and `:streamRawPredict`.

The model is in the path and must not be in the body, the version the other way round; nothing is fetched by address.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from apps.sandbox.conversation import Conversation
from apps.sandbox.formats import Glance, anthropic_messages
from apps.sandbox.formats.anthropic_messages import (
    STREAM_TYPE,
    write_error,
    write_error_event,
    write_events,
    write_models,
    write_reply,
)
from apps.sandbox.scenario import SandboxRefusal

__all__ = [
    "MODELS_PATH",
    "PATH",
    "PLACE",
    "STREAM_TYPE",
    "check_version",
    "find_token",
    "glance",
    "read_request",
    "write_error",
    "write_error_event",
    "write_events",
    "write_models",
    "write_reply",
]

PLACE = "/v1/projects/[^/]+/locations/[^/]+/publishers/anthropic/models"
PATH = re.compile(rf"{PLACE}/(?!count-tokens:)[^/]+:(rawPredict|streamRawPredict)")
MODELS_PATH = "/v1/publishers/anthropic/models"
VERSION = "vertex-2023-10-16"


def find_token(headers: Mapping[str, str]) -> str | None:
    """Return the access token or the key, if there is one."""
    return headers.get("authorization", "").removeprefix("Bearer ").strip() or anthropic_messages.find_token(headers)


def glance(path: str, body: bytes) -> Glance | None:
    """Return model and manner of the request, which the path says."""
    model, _, method = path.rpartition("/")[2].rpartition(":")
    return Glance(model, method == "streamRawPredict", wants_usage=True)


def check_version(wire: dict[str, Any]) -> None:
    """Raise Refusal (400) unless the body states the version, which is taken out."""
    if wire.pop("anthropic_version", None) != VERSION:
        raise SandboxRefusal(400, "anthropic_version: Field required")


def read_request(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) that names the field, as Anthropic does."""
    try:
        wire = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(400, "The request body is not valid JSON") from error
    check_version(wire)
    if "model" in wire:
        raise SandboxRefusal(400, "model: Extra inputs are not permitted")
    if any(source.get("type") == "url" for source in _sources(wire.get("messages"))):
        raise SandboxRefusal(400, "messages.0.content.0.image.source.base64.data: URL sources are not supported")
    wire["model"], _, method = path.rpartition("/")[2].rpartition(":")
    if bool(wire.get("stream")) != (method == "streamRawPredict"):
        raise SandboxRefusal(400, f"stream: does not go with {method}")
    return anthropic_messages.read_request(path, msgspec.json.encode(wire))


def _sources(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the sources of all pictures and documents, those that tools show included."""
    if isinstance(value, dict):
        if isinstance(source := value.get("source"), dict):
            yield source
        yield from _sources(value.get("content"))
    elif isinstance(value, list):
        for inner in value:
            yield from _sources(inner)

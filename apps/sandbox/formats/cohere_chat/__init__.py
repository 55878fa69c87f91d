"""Cohere's chat, version 2: `POST /v2/chat`, plain and as server-sent events."""

from __future__ import annotations

import re

from apps.sandbox.formats.cohere_chat.reading import find_token, glance, read_request
from apps.sandbox.formats.cohere_chat.writing import (
    write_error,
    write_error_event,
    write_events,
    write_models,
    write_reply,
)

__all__ = [
    "MODELS_PATH",
    "PATH",
    "STREAM_TYPE",
    "find_token",
    "glance",
    "read_request",
    "write_error",
    "write_error_event",
    "write_events",
    "write_models",
    "write_reply",
]

PATH = re.compile("/v2/chat")
MODELS_PATH = "/v2/models"
STREAM_TYPE = "text/event-stream"

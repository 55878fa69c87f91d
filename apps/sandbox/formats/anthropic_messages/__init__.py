"""Anthropic's messages: `POST /v1/messages`, plain and as server-sent events."""

from __future__ import annotations

import re

from apps.sandbox.formats.anthropic_messages.reading import find_token, glance, read_request
from apps.sandbox.formats.anthropic_messages.writing import (
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

PATH = re.compile("(/anthropic)?/v1/messages")
MODELS_PATH = "/v1/models"
STREAM_TYPE = "text/event-stream"

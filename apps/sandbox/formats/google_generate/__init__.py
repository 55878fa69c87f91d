"""Google's `generateContent`: `POST /v1beta/models/<model>:generateContent`, and `:streamGenerateContent?alt=sse`."""

from __future__ import annotations

import re

from apps.sandbox.formats.google_generate.reading import find_token, glance, read_request
from apps.sandbox.formats.google_generate.writing import (
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

PATH = re.compile("/v1beta/models/[^/]+:(generateContent|streamGenerateContent)")
MODELS_PATH = "/v1beta/models"
STREAM_TYPE = "text/event-stream"

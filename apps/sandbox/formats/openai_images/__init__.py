"""OpenAI's images: `POST /v1/images/generations` in JSON, `/v1/images/edits` as a form; plain, and as a stream."""

from __future__ import annotations

import re

from apps.sandbox.formats.openai_chat import find_token, write_error, write_error_event, write_models
from apps.sandbox.formats.openai_images.reading import glance, read_request
from apps.sandbox.formats.openai_images.writing import write_events, write_reply

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

PATH = re.compile("/v1/images/(generations|edits)")
MODELS_PATH = "/v1/models"
STREAM_TYPE = "text/event-stream"

"""OpenAI's Responses: `POST /v1/responses`, plain and as server-sent events."""

from __future__ import annotations

import re

from apps.sandbox.formats.openai_chat import MODELS_PATH, STREAM_TYPE, find_token, write_error, write_models
from apps.sandbox.formats.openai_responses.reading import glance, read_request
from apps.sandbox.formats.openai_responses.writing import write_error_event, write_events, write_reply

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

PATH = re.compile("(/openai)?/v1/responses")

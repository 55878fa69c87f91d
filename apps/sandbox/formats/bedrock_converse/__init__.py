"""Amazon Bedrock's Converse: `POST /model/<model>/converse`, and `/converse-stream` as AWS's binary event stream."""

from __future__ import annotations

import re

from apps.sandbox.formats.bedrock_converse.reading import find_token, glance, read_request
from apps.sandbox.formats.bedrock_converse.writing import (
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

PATH = re.compile("/model/.+/converse(-stream)?")
MODELS_PATH = "/foundation-models"
STREAM_TYPE = "application/vnd.amazon.eventstream"

"""Google's `generateContent`: `POST /v1beta/models/<model>:generateContent`, and `:streamGenerateContent?alt=sse`; the
same below a project and location, as Google Cloud has it."""

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
    "PLACES",
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

PLACES = "(?:/v1beta/models|/v1(?:beta1)?/projects/[^/]+/locations/[^/]+/publishers/google/models)"
PATH = re.compile(f"{PLACES}/[^/]+:(generateContent|streamGenerateContent)")
MODELS_PATH = "/v1beta/models"
STREAM_TYPE = "text/event-stream"

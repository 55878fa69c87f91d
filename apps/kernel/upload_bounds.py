"""Bounds of uploads, kept by the HTTP server before a body is read and by the endpoint that reads it. Pure."""

from __future__ import annotations

from typing import Final

# Bytes of a part of a file, as OpenAI's API has it, and of all in a form that is not its file.
MAX_FILE_PART: Final = 64 * 1024 * 1024
FORM_ROOM: Final = 64 * 1024

"""The request id, which appears in the response, in the logs, and at the client."""

from __future__ import annotations

import re

from apps.kernel.ids import new_id, text_of

HEADER = "x-request-id"
# The header of Anthropic's clients.
OF_ANTHROPIC = "request-id"
_SANE = re.compile(r"[A-Za-z0-9._-]{1,128}")


def request_id_of(header: str | None) -> str:
    """Return the client's own id if it is safe to repeat, else a new id."""
    return header if header is not None and _SANE.fullmatch(header) else text_of(new_id())

"""The request id: in the answer, in the logs, at the client.

Knows which ids of clients are fit to be repeated. Must never know what the request asks for.
"""

from __future__ import annotations

import re

from apps.kernel.ids import new_id, text_of

HEADER = "x-request-id"
# Where Anthropic's clients look for it.
OF_ANTHROPIC = "request-id"
_SANE = re.compile(r"[A-Za-z0-9._-]{1,128}")


def request_id_of(header: str | None) -> str:
    """Return the client's own id when it sent one that is safe to repeat, else a new id."""
    return header if header is not None and _SANE.fullmatch(header) else text_of(new_id())

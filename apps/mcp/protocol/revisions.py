"""Supported protocol revisions, and how a request states its revision. Pure.

There are two eras: up to 2025-11-25 a client opens a session (`initialize`) and names it with each request; from
2026-07-28 on each request is independent and describes its client in `_meta`.
"""

from __future__ import annotations

from typing import Any, Final

# With sessions, newest first; and without.
WITH_SESSIONS: Final = ("2025-11-25", "2025-06-18")
STATELESS: Final = ("2026-07-28",)
SERVED: Final = (*STATELESS, *WITH_SESSIONS)
# Old revisions with sessions that are not supported: their clients are offered a newer one.
_BYGONE: Final = ("2025-03-26", "2024-11-05")
# From this revision on, a stream begins with an event that has an id and no data, so that it can be resumed from there.
_PRIMED_FROM: Final = "2025-11-25"

HEADER: Final = "mcp-protocol-version"
META_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
META_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
META_SERVER: Final = "io.modelcontextprotocol/serverInfo"


def is_stateless(header: str | None, params: dict[str, Any]) -> bool:
    """Return whether a request is of the era without sessions: by its header, or by the fields in `_meta`.

    Unknown versions count as the newer era, whose error lists the supported ones.
    """
    if header is not None:
        return header not in WITH_SESSIONS and header not in _BYGONE
    meta = params.get("_meta")
    return isinstance(meta, dict) and META_VERSION in meta


def negotiated(asked: Any) -> str:
    """Return the revision of a session: the requested one if supported, else the newest."""
    return asked if asked in WITH_SESSIONS else WITH_SESSIONS[0]


def is_primed(revision: str) -> bool:
    """Return whether clients of a revision expect a first event without data."""
    return revision >= _PRIMED_FROM

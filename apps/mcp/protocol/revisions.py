"""Protocol revisions that are served, and how a request says which it speaks. Pure.

Two eras: up to 2025-11-25 a client opens a session (`initialize`) and names it with each request; from 2026-07-28 on
each request stands for itself and says in `_meta` what its client is. Must never know a method.
"""

from __future__ import annotations

from typing import Any, Final

# With sessions, the newest first; and without.
WITH_SESSIONS: Final = ("2025-11-25", "2025-06-18")
STATELESS: Final = ("2026-07-28",)
SERVED: Final = (*STATELESS, *WITH_SESSIONS)
# Revisions of the era with sessions that are not served: whoever speaks one is offered a newer one.
_BYGONE: Final = ("2025-03-26", "2024-11-05")
# From then on a stream begins with an event that has an id and no data, so that it can be resumed from its start.
_PRIMED_FROM: Final = "2025-11-25"

HEADER: Final = "mcp-protocol-version"
META_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
META_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
META_SERVER: Final = "io.modelcontextprotocol/serverInfo"


def is_stateless(header: str | None, params: dict[str, Any]) -> bool:
    """Tell the era of a request: by its header, or by what only the newer era has in `_meta`.

    A version that nobody knows is of the newer era, which has an error for it that says what is served.
    """
    if header is not None:
        return header not in WITH_SESSIONS and header not in _BYGONE
    meta = params.get("_meta")
    return isinstance(meta, dict) and META_VERSION in meta


def negotiated(asked: Any) -> str:
    """Return the revision of a session: the one that was asked for, else the newest."""
    return asked if asked in WITH_SESSIONS else WITH_SESSIONS[0]


def is_primed(revision: str) -> bool:
    """Tell whether clients of a revision expect a first event without data."""
    return revision >= _PRIMED_FROM

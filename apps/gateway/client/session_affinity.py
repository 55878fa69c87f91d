"""Session affinity: find the conversation that a request belongs to, so that its provider's prompt cache is hit again.

Reads the headers and fields that clients already send. Pure. A key that comes from a field is only compared; a session
that a header names is also told in traces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

# In this order; sources: Claude Code, opencode, Codex.
HEADERS = ("x-claude-code-session-id", "x-session-id", "x-session-affinity", "session-id")
_MAX_LENGTH = 512
# Characters of a user's id that are looked into: Claude Code's has some 200.
_MAX_USER_LENGTH = 16_384


def find_session_key(
    headers: Mapping[str, str], prompt_cache_key: str | None, metadata: Mapping[str, Any] | None
) -> str | None:
    """Return the key that all requests of one conversation share, None when the client sends none."""
    if headers and (session := session_id_of(headers)):
        return session
    if prompt_cache_key:
        return prompt_cache_key[:_MAX_LENGTH]
    user = (metadata or {}).get("user_id")
    return _session_within(user)[:_MAX_LENGTH] if isinstance(user, str) and user else None


def session_id_of(headers: Mapping[str, str]) -> str:
    """Return the session that a client names in a header; empty where it names none."""
    return next((value[:_MAX_LENGTH] for name in HEADERS if (value := headers.get(name))), "")


def _session_within(user: str) -> str:
    """Return the session that Claude Code names inside its `metadata.user_id`, else all of it."""
    if user.startswith("{") and len(user) <= _MAX_USER_LENGTH:
        try:
            session = msgspec.json.decode(user, type=dict[str, Any]).get("session_id")
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return user
        return session if isinstance(session, str) and session else user
    return user.rpartition("_session_")[2] or user

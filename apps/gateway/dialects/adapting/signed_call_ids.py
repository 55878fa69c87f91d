"""Thought signature inside a tool call's id, so that clients who keep nothing but ids bring it back.

They are joined with characters that every format allows in an id. A
format that did not make the signature takes the bare id.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from typing import Any, Final

_SEPARATOR = "__sealed__"
# Where Google's own OpenAI format has the signature of a call.
FIELD: Final = "extra_content"


def join_signature(call_id: str, signature: str) -> str:
    """Return an id that carries a signature."""
    return f"{call_id}{_SEPARATOR}{urlsafe_b64encode(signature.encode()).decode().rstrip('=')}"


def split_signature(call_id: str) -> tuple[str, str | None]:
    """Return the bare id and the signature that it carried, if any. An id that the gateway did not make is bare."""
    bare, separator, encoded = call_id.partition(_SEPARATOR)
    if not separator:
        return call_id, None
    try:
        return bare, urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except (Error, ValueError):
        return call_id, None


def stated_signature(extra: dict[str, Any] | None) -> str | None:
    """Return the signature in a call's `extra_content.google.thought_signature`, None where there is none."""
    found: Any = extra
    for name in (FIELD, "google", "thought_signature"):
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, str) and found else None


def state_signature(signature: str) -> dict[str, Any]:
    """Return the fields of a call that state its signature."""
    return {FIELD: {"google": {"thought_signature": signature}}}

"""A seal (the maker's signature on a tool call) inside the call's id, so that clients who keep ids and nothing else
bring it back.

Knows how the two are joined, in characters that every format allows in an id. Must never know whose seal it is. A
format that did not make the seal takes the bare id.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error

_SEPARATOR = "__sealed__"


def join_seal(call_id: str, seal: str) -> str:
    """Return an id that carries a seal."""
    return f"{call_id}{_SEPARATOR}{urlsafe_b64encode(seal.encode()).decode().rstrip('=')}"


def split_seal(call_id: str) -> tuple[str, str | None]:
    """Return the bare id, and the seal that it carried, if any. What is not of our making is a bare id."""
    bare, separator, encoded = call_id.partition(_SEPARATOR)
    if not separator:
        return call_id, None
    try:
        return bare, urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except (Error, ValueError):
        return call_id, None

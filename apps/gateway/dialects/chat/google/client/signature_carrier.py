"""Google generateContent, client side: other makers' signed thinking, carried in a `thoughtSignature` and back.

Clients of this format keep one opaque value with a call or a text and send it back: Gemini's own signature, or, where
another maker answered, a carrier of all its blocks of thinking. A client's value is not trusted: a carrier is as
trustworthy as the maker's signatures inside.
"""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64decode
from binascii import Error
from collections.abc import Sequence

import msgspec

from apps.gateway.canonical.chat import Reasoning
from apps.gateway.canonical.events import ReasoningDelta
from apps.gateway.dialects.reading.fields import BOUNDS
from apps.kernel.json_bounds import OutOfBounds, check

# A multiple of three bytes, so that all carriers begin with the same characters, which both alphabets have.
_MARK = b"model-gateway/thinking/1"
_PREFIX = b64encode(_MARK).decode()
# Bytes of thinking that are carried; no model has ever thought as much before one call.
MAX_BYTES = 512 * 1024


class _Block(msgspec.Struct, omit_defaults=True):
    """A block of thinking, as `Reasoning` has it."""

    text: str = ""
    summary: bool = False
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    format: str | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[_Block]).decode


def is_carrier(signature: str) -> bool:
    """Return whether a `thoughtSignature` is one that the gateway made of another maker's thinking."""
    return signature.startswith(_PREFIX)


def write_carrier(blocks: Sequence[ReasoningDelta]) -> str | None:
    """Return the `thoughtSignature` that carries whole blocks of thinking; None for none, and for more than is carried.

    It is base64 of the standard alphabet: some clients decode it and encode it again in the other one.
    """
    carried = [
        _Block(block.text, block.summary, block.signature, block.data, block.id, block.format)
        for block in blocks
        if block.format is not None
    ]
    if not carried:
        return None
    content = _encode(carried)
    return b64encode(_MARK + content).decode() if len(content) <= MAX_BYTES else None


def read_carrier(signature: str) -> list[Reasoning] | None:
    """Return the blocks of thinking in a carrier; None for a signature that is no carrier, or a changed one."""
    if not is_carrier(signature) or len(signature) > 2 * MAX_BYTES:
        return None
    plain = signature.replace("+", "-").replace("/", "_")
    try:
        content = urlsafe_b64decode(plain + "=" * (-len(plain) % 4)).removeprefix(_MARK)
        check(content, BOUNDS)
        blocks = _decode(content)
    except (Error, ValueError, OutOfBounds, msgspec.MsgspecError):
        return None
    return [
        Reasoning(
            text=block.text,
            summary=block.summary,
            signature=block.signature,
            data=block.data,
            id=block.id,
            format=block.format,
        )
        for block in blocks
    ]

"""AWS's binary frames: a length, headers, a payload, and a checksum behind the lengths and behind the whole."""

from __future__ import annotations

import struct
from typing import Any
from zlib import crc32

import msgspec

_TEXT = 7


def frame(kind: str, payload: dict[str, Any], *, exception: bool = False) -> bytes:
    """Return the frame of an event, or of an exception."""
    word = "exception" if exception else "event"
    names = {f":{word}-type": kind, ":content-type": "application/json", ":message-type": word}
    headers = b"".join(_header(name, value) for name, value in names.items())
    body = msgspec.json.encode(payload)
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    whole = prelude + struct.pack(">I", crc32(prelude)) + headers + body
    return whole + struct.pack(">I", crc32(whole))


def _header(name: str, value: str) -> bytes:
    return bytes([len(name)]) + name.encode() + bytes([_TEXT]) + len(value).to_bytes(2) + value.encode()

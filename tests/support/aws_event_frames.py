"""AWS's binary frames, written for tests as AWS describes them; nothing of the product's own takes part in it."""

from __future__ import annotations

import struct
from pathlib import Path
from zlib import crc32

from botocore.eventstream import EventStreamBuffer

# A streamed answer among the files of a case: text as it is on the wire, or lines that stand for binary frames.
STREAM = "stream.*"


def header(kind: int, value: bytes, name: bytes = b"other") -> bytes:
    """Return a header of a type, its value as it is on the wire."""
    return bytes([len(name)]) + name + bytes([kind]) + value


def text_header(name: str, value: str) -> bytes:
    """Return a header that holds text."""
    encoded = value.encode()
    return header(7, len(encoded).to_bytes(2) + encoded, name.encode())


def frame(kind: str, payload: bytes, *, exception: bool = False, more: bytes = b"") -> bytes:
    """Return a frame of an event, or of an exception; `more` headers follow its own."""
    word = "exception" if exception else "event"
    headers = text_header(f":{word}-type", kind) + text_header(":content-type", "application/json")
    headers += text_header(":message-type", word) + more
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    whole = prelude + struct.pack(">I", crc32(prelude)) + headers + payload
    return whole + struct.pack(">I", crc32(whole))


def frames_of(told: str) -> bytes:
    """Return a stream: a frame for each line `<event type> <payload>`; an exception's type has a `!` before it."""
    data = b""
    for line in told.splitlines():
        name, _, payload = line.partition(" ")
        data += frame(name.removeprefix("!"), payload.encode(), exception=name.startswith("!"))
    return data


def lines_of(data: bytes) -> list[str]:
    """Return a stream as the lines of `frames_of`; AWS's own reader has checked both checksums of each frame."""
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    lines = []
    for message in buffer:
        kind = message.headers[":message-type"]
        assert message.headers[":content-type"] == "application/json"
        mark = "!" if kind == "exception" else ""
        lines.append(f"{mark}{message.headers[f':{kind}-type']} {message.payload.decode()}")
    return lines


def stream_of(folder: Path) -> bytes:
    """Return the provider's streamed answer of a case; none at all where there is none."""
    lines = folder / "stream.events"
    return frames_of(lines.read_text()) if lines.exists() else b"".join(map(Path.read_bytes, folder.glob(STREAM)))

"""Server-Sent Events: bytes as they arrive to the data of whole events.

Knows lines. Must never know what the data means. Names of events are left out: every format that providers speak over
SSE repeats the name inside the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from apps.gateway.framing import BrokenFrames

# One event may carry several pictures in base64.
MAX_EVENT_BYTES = 128 * 1024 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class EventTooLong(BrokenFrames):
    """An event of more bytes than anybody should have to hold."""


def frames(chunks: Iterable[bytes], max_bytes: int = MAX_EVENT_BYTES) -> Iterator[bytes]:
    """Yield the data of each event that has any. An empty chunk means silence and is yielded as it is.

    Lines end with LF, CR or CRLF. What is left when the bytes end counts as an event, for servers that forget the blank
    line. Raises EventTooLong when an event has more than `max_bytes`.
    """
    parts: list[bytes] = []  # of a line whose end has not come
    data: list[bytes] = []  # lines of an event whose end has not come
    size = 0
    at_start, after_cr = True, False
    for chunk in chunks:
        if not chunk:
            yield chunk
            continue
        size += len(chunk)
        lines = chunk.splitlines()
        if after_cr and chunk[:1] == b"\n":
            del lines[0]  # the second half of a CRLF
        after_cr = chunk[-1:] == b"\r"
        unfinished = b"" if after_cr or chunk[-1:] == b"\n" else lines.pop()
        for line in lines:
            if parts:
                parts.append(line)
                line = b"".join(parts)
                parts.clear()
            if at_start:
                line, at_start = line.removeprefix(_BYTE_ORDER_MARK), False
            if line:
                _keep_data(line, data)
                continue
            if event := b"\n".join(data):
                yield event
            data.clear()
            size = 0
        if unfinished:
            parts.append(unfinished)
        if size > max_bytes:
            raise EventTooLong(f"an event of the stream is longer than {max_bytes} bytes")
    _keep_data(b"".join(parts).removeprefix(_BYTE_ORDER_MARK if at_start else b""), data)
    if event := b"\n".join(data):
        yield event


def _keep_data(line: bytes, data: list[bytes]) -> None:
    """Keep what a `data` line says; comments and the other fields say nothing here."""
    if line.startswith(b"data:"):
        data.append(line[6:] if line.startswith(b" ", 5) else line[5:])
    elif line == b"data":
        data.append(b"")

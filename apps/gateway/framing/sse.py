"""SSE framing (Server-Sent Events): bytes as they arrive to the data of whole events.

Names of events are left out: every format that providers speak over
SSE repeats the name inside the data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from apps.gateway.framing import LONG, BrokenFrames

# One event may carry several images in base64.
MAX_EVENT_BYTES = 128 * 1024 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# As a number: `in` takes what it is given for one first, and to fail at that costs five times the search.
_CR = ord("\r")
# Line separators that JSON leaves as they are within a text. Readers that go by Unicode's lines (Python's `splitlines`,
# and with it httpx's `iter_lines`) would break an event there.
_SEPARATORS = re.compile(rb"\xc2\x85|\xe2\x80[\xa8\xa9]")
_ESCAPES = {"\x85": b"\\u0085", "\u2028": b"\\u2028", "\u2029": b"\\u2029"}


class EventTooLong(BrokenFrames):
    """An event that is too large."""


def escape_separators(piece: bytes) -> bytes:
    """Return events of JSON with no line separator but the ones between lines: those within texts are escaped."""
    if piece.isascii():
        # The common case, at a tenth of the search.
        return piece
    return _SEPARATORS.sub(_escape, piece) if _SEPARATORS.search(piece) else piece


def _escape(found: re.Match[bytes]) -> bytes:
    return _ESCAPES[found[0].decode()]


def frames(
    chunks: Iterable[bytes], max_bytes: int = MAX_EVENT_BYTES, look: Callable[[bytes], object] = len
) -> Iterator[bytes]:
    """Yield the data of each event that has any. An empty chunk means silence and is yielded as it is.

    `look` is called with each event of LONG bytes and more before it is yielded, and may raise.

    Lines end with LF, CR or CRLF. A rest when the bytes end counts as an event, for servers that forget the blank line.
    Raises EventTooLong when an event has more than `max_bytes`.
    """
    parts: list[bytes] = []  # of a line whose end has not come
    data: list[bytes] = []  # lines of an event whose end has not come
    size = 0
    longest = min(max_bytes, LONG)
    at_start, after_cr = True, False
    for chunk in chunks:
        if not chunk:
            yield chunk
            continue
        if not (parts or data) and len(chunk) <= longest and (events := _plain_events(chunk)):
            at_start, after_cr, size = False, False, 0
            yield from events
            continue
        size += len(chunk)
        lines, unfinished = _lines_of(chunk, after_cr)
        after_cr = chunk[-1:] == b"\r"
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
                yield _looked_at(event, look)
            data.clear()
            size = 0
        if unfinished:
            parts.append(unfinished)
        if size > max_bytes:
            raise EventTooLong(f"an event of the stream is longer than {max_bytes} bytes")
    _keep_data(b"".join(parts).removeprefix(_BYTE_ORDER_MARK if at_start else b""), data)
    if event := b"\n".join(data):
        yield _looked_at(event, look)


def _looked_at(event: bytes, look: Callable[[bytes], object]) -> bytes:
    if len(event) >= LONG:
        look(event)
    return event


def _lines_of(chunk: bytes, after_cr: bool) -> tuple[list[bytes], bytes]:
    """Return the lines that end within these bytes, and the beginning of the one that does not."""
    lines = chunk.splitlines()
    if after_cr and chunk[:1] == b"\n":
        del lines[0]  # the second half of a CRLF
    return lines, b"" if chunk[-1:] in {b"\r", b"\n"} else lines.pop()


def _plain_events(chunk: bytes) -> list[bytes]:
    """Return the data of the events in these bytes where each is one `data` line, as nearly all are, else nothing."""
    if _CR in chunk or not (chunk.startswith(b"data: ") and chunk.endswith(b"\n\n")):
        return []
    events = chunk[6:-2].split(b"\n\ndata: ")
    # One that says nothing would be taken for silence.
    return events if chunk.count(b"\n") == 2 * len(events) and b"" not in events else []


def _keep_data(line: bytes, data: list[bytes]) -> None:
    """Keep what a `data` line says; comments and the other fields say nothing here."""
    if line.startswith(b"data:"):
        data.append(line[6:] if line.startswith(b" ", 5) else line[5:])
    elif line == b"data":
        data.append(b"")

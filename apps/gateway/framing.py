"""Framings: bytes of a stream to frames, whatever these mean: server-sent events, AWS event streams, or as they come.

Names of server-sent events are left out: every format that providers speak over SSE repeats the name inside the data.

An AWS event stream has one JSON object in each frame, under the name that its headers give it. A frame is: its length
and its headers' length (4 bytes each, the highest first), the CRC32 of these 8 bytes, the headers, the payload, the
CRC32 of all before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from struct import Struct
from typing import Final
from zlib import crc32

import msgspec

from apps.gateway.failures import UpstreamFailure

# Chunks of bytes, the most bytes that a frame may have, and who looks at each of LONG bytes and more.
Frames = Callable[[Iterable[bytes], int, Callable[[bytes], object]], Iterator[bytes]]
LONG = 64 * 1024


class BrokenFrames(UpstreamFailure):
    """Bytes that are no frames, or a frame that is too large: the connection fails."""

    def __init__(self, message: str) -> None:
        super().__init__("network", message)


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


def sse_frames(
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


# AWS documents a lower maximum: 24 MiB of payload, 128 KiB of headers.
MAX_FRAME_BYTES = 32 * 1024 * 1024
_PRELUDE = Struct(">III")
_CRC = Struct(">I")
_LEAST = _PRELUDE.size + _CRC.size
# Bytes of a header's value by its type, where these are always as many; two types are strings with their length before.
_FIXED = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
_BYTES, _STRING = 6, 7
_encode = msgspec.json.Encoder().encode


def aws_event_frames(
    chunks: Iterable[bytes], max_bytes: int = MAX_FRAME_BYTES, look: Callable[[bytes], object] = len
) -> Iterator[bytes]:
    """Yield `{"<event type>": <payload>}` for each frame, `{"exception": {"<its type>": <payload>}}` for one that tells
    of a failure. An empty chunk means silence and is yielded as it is.

    `look` is called with each of LONG bytes and more before it is yielded, and may raise.

    An incomplete frame at the end of the bytes is dropped: the stream was cut. Raises BrokenFrames for bytes that are
    no frames, and for a frame of more than `max_bytes`.
    """
    held = bytearray()
    for chunk in chunks:
        if not chunk:
            yield chunk
            continue
        held += chunk
        at = 0
        while size := _size_at(held, at, max_bytes):
            frame = _read(bytes(held[at : at + size]))
            if len(frame) >= LONG:
                look(frame)
            yield frame
            at += size
        del held[:at]


def _size_at(held: bytearray, at: int, max_bytes: int) -> int:
    """Return the size of the frame that begins there, 0 while it is not whole."""
    if len(held) - at < _PRELUDE.size:
        return 0
    size, headers, crc = _PRELUDE.unpack_from(held, at)
    if crc32(held[at : at + 8]) != crc:
        raise BrokenFrames("the beginning of a frame of the stream does not fit its checksum")
    if size > max_bytes:
        raise BrokenFrames(f"a frame of the stream is longer than {max_bytes} bytes")
    if size < _LEAST + headers:
        raise BrokenFrames("a frame of the stream is shorter than its headers")
    return int(size) if len(held) - at >= size else 0


def _read(frame: bytes) -> bytes:
    """Return what a whole frame says."""
    _, length, _ = _PRELUDE.unpack_from(frame)
    end = len(frame) - _CRC.size
    if crc32(frame[:end]) != _CRC.unpack_from(frame, end)[0]:
        raise BrokenFrames("a frame of the stream does not fit its checksum")
    headers = _read_headers(frame[_PRELUDE.size : _PRELUDE.size + length])
    payload = frame[_PRELUDE.size + length : end] or b"null"
    kind = headers.get(":message-type", "event")
    if kind == "event":
        return b"{%b:%b}" % (_encode(headers.get(":event-type", "")), payload)
    if kind == "error":
        payload = _encode({"message": headers.get(":error-message", "")})
    name = headers.get(":exception-type") or headers.get(":error-code", "")
    return b'{"exception":{%b:%b}}' % (_encode(name), payload)


def _read_headers(data: bytes) -> dict[str, str]:
    """Return the headers that hold text."""
    headers: dict[str, str] = {}
    at = 0
    try:
        while at < len(data):
            name_end = at + 1 + data[at]
            name = data[at + 1 : name_end].decode()
            kind = data[name_end]
            at = name_end + 1
            if kind in (_BYTES, _STRING):
                start, at = at + 2, at + 2 + int.from_bytes(data[at : at + 2])
                if kind == _STRING:
                    headers[name] = data[start:at].decode()
            else:
                at += _FIXED[kind]
    except (IndexError, KeyError, UnicodeDecodeError) as error:
        raise BrokenFrames("the headers of a frame of the stream cannot be read") from error
    if at != len(data):
        raise BrokenFrames("the headers of a frame of the stream cannot be read")
    return headers


_LENGTHS = Struct(">II")


def write_frame(kind: str, payload: bytes, *, is_exception: bool = False) -> bytes:
    """Return the frame of an event, or of an exception, whose type is `kind` and whose content is JSON."""
    headers = _write_headers(kind, is_exception)
    lengths = _LENGTHS.pack(_LEAST + len(headers) + len(payload), len(headers))
    frame = b"%b%b%b%b" % (lengths, _CRC.pack(crc32(lengths)), headers, payload)
    return frame + _CRC.pack(crc32(frame))


# A format has a dozen types.
@lru_cache(maxsize=64)
def _write_headers(kind: str, is_exception: bool) -> bytes:
    word = "exception" if is_exception else "event"
    headers = {f":{word}-type": kind, ":content-type": "application/json", ":message-type": word}
    return b"".join(map(_write_header, headers, headers.values()))


def _write_header(name: str, value: str) -> bytes:
    return b"%c%b%c%b%b" % (len(name), name.encode(), _STRING, len(value).to_bytes(2), value.encode())


def raw_frames(chunks: Iterable[bytes], max_bytes: int = 0, look: Callable[[bytes], object] = len) -> Iterator[bytes]:
    """Yield the chunks as they are. An empty chunk means silence; none is longer than a single read."""
    yield from chunks


# The readers of framings by name: chunks of bytes as they arrive to whole frames; an empty chunk is silence.
FRAMINGS: Final[dict[str, Frames]] = {"sse": sse_frames, "aws_eventstream": aws_event_frames, "raw": raw_frames}

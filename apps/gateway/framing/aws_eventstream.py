"""AWS event stream framing: binary frames to one JSON object each, under the name that the headers give it, and back.

A frame is: its length and its headers' length (4 bytes each, the highest first), the CRC32 of these 8 bytes, the
headers, the payload, the CRC32 of all before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from struct import Struct
from zlib import crc32

import msgspec

from apps.gateway.framing import LONG, BrokenFrames

# AWS documents a lower maximum: 24 MiB of payload, 128 KiB of headers.
MAX_FRAME_BYTES = 32 * 1024 * 1024
_PRELUDE = Struct(">III")
_CRC = Struct(">I")
_LEAST = _PRELUDE.size + _CRC.size
# Bytes of a header's value by its type, where these are always as many; two types are strings with their length before.
_FIXED = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
_BYTES, _STRING = 6, 7
_encode = msgspec.json.Encoder().encode


def frames(
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

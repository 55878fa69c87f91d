"""Content decoding (`Content-Encoding`) of requests' and answers' bodies in gzip and deflate, requests' in zstd too.

The output is bounded by its size and by its ratio to the compressed size, and checked piece by piece: a decompression
bomb is refused as soon as it exceeds a bound, and never held whole. A request's body is decoded at once; an answer's
piece by piece, as it comes (`ContentDecoder`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

import zstandard

from apps.kernel.concurrency.native_thread_pool import LARGE, offload
from apps.kernel.errors import BodyTooLarge, InvalidRequest, UnsupportedMediaType

HEADER: Final = "Content-Encoding"
# How many times its compressed size a body may have, once it is larger than so many bytes: the densest text recorded
# has 60 times, a bomb a thousand times.
MAX_RATIO: Final = 200
RATIO_FREE: Final = 1024 * 1024
# Bytes that go in and come out of zlib at a time.
_PIECE: Final = 64 * 1024
# Bytes that go into zstd at a time: four of them may be 128 KiB, and what comes out is not bounded otherwise.
_ZSTD_PIECE: Final = 256
# The largest window that a decoder has to have (RFC 9659).
_ZSTD_WINDOW: Final = 8 * 1024 * 1024
_GZIP, _ZLIB, _RAW = 31, 15, -15


def unpack(packed: bytes, content_encoding: str, limit: int) -> bytes:
    """Return a body without its content coding, of at most `limit` bytes; a large one is unpacked on a thread.

    Raises UnsupportedMediaType (415) for another coding or more than one, BodyTooLarge (413) for more than `limit`
    bytes, InvalidRequest (400) for a corrupt body and for one that exceeds the allowed compression ratio.
    """
    coding = content_encoding.strip().lower()
    if coding in {"", "identity"}:
        return packed
    if not packed:
        return b""
    match coding:
        case "gzip" | "x-gzip":
            pieces = _inflated(packed, _GZIP)
        case "deflate":
            pieces = _inflated(packed, _ZLIB if _is_zlib(packed) else _RAW)
        case "zstd":
            pieces = _unzstd(packed)
        case _:
            raise UnsupportedMediaType(
                f"{HEADER} must be gzip, deflate, zstd or identity, and one of them alone",
                param=HEADER,
                headers=[("Accept-Encoding", "gzip, deflate, zstd")],
            )
    body = _UnpackedBody(pieces, coding, len(packed), limit)
    if not body.take(LARGE):
        offload(LARGE, body.take)
    return b"".join(body.parts)


class _UnpackedBody:
    """The decoded bytes of a body so far."""

    def __init__(self, pieces: Iterator[bytes], coding: str, packed: int, limit: int) -> None:
        self.parts: list[bytes] = []
        self._pieces = pieces
        self._coding = coding
        self._limit = limit
        self._by_ratio = max(RATIO_FREE, packed * MAX_RATIO)
        self._size = 0

    def take(self, until: int | None = None) -> bool:
        """Unpack all, or until so many bytes have come out; return whether that was all. Raises as `unpack` does."""
        try:
            for piece in self._pieces:
                self._size += len(piece)
                if self._size > self._by_ratio:
                    raise _malformed(f"The request body unpacks to more than {MAX_RATIO} times its size")
                if self._size > self._limit:
                    raise BodyTooLarge(f"The request body is larger than {self._limit} bytes once it is unpacked")
                self.parts.append(piece)
                if until is not None and self._size >= until:
                    return False
        except (zlib.error, zstandard.ZstdError, _MalformedBodyError):
            raise _malformed(f"The request body is not valid {self._coding}, or not all of it") from None
        return True


class _MalformedBodyError(Exception):
    """A body that ends too early, or goes on after its end."""


def _inflated(packed: bytes, window: int) -> Iterator[bytes]:
    inflate = zlib.decompressobj(window)
    for start in range(0, len(packed), _PIECE):
        data = packed[start : start + _PIECE]
        while data and not inflate.eof:
            yield inflate.decompress(data, _PIECE)
            data = inflate.unconsumed_tail
        if inflate.eof:
            if inflate.unused_data or start + _PIECE < len(packed):
                raise _MalformedBodyError
            return
    # The rest that the last call had no room for.
    yield inflate.flush()
    if not inflate.eof or inflate.unused_data:
        raise _MalformedBodyError


def _unzstd(packed: bytes) -> Iterator[bytes]:
    unzstd = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
    for start in range(0, len(packed), _ZSTD_PIECE):
        yield unzstd.decompress(packed[start : start + _ZSTD_PIECE])
        if unzstd.eof:
            if unzstd.unused_data or start + _ZSTD_PIECE < len(packed):
                raise _MalformedBodyError
            return
    raise _MalformedBodyError


def _is_zlib(packed: bytes) -> bool:
    """Tell zlib's format, which HTTP calls deflate, from bare deflate, which some clients send under that name."""
    return len(packed) > 1 and packed[0] & 0x0F == zlib.DEFLATED and (packed[0] << 8 | packed[1]) % 31 == 0


def _malformed(message: str) -> InvalidRequest:
    return InvalidRequest(message, code="invalid_content_encoding", param=HEADER)


# The supported values of `Content-Encoding`; an empty one and `identity` mean no encoding.
CODINGS: Final = frozenset({"gzip", "x-gzip", "deflate"})
# Bytes that a step decodes at most, and that it takes in: the rest of them is copied at every step.
STEP: Final = 64 * 1024
_INTAKE: Final = 8 * 1024


class CorruptEncoding(Exception):
    """Bytes that are not what their coding says, or become too many."""


class ContentDecoder:
    """Decompresses one body, which comes in pieces."""

    def __init__(self) -> None:
        # Whichever of the two it is: servers mean either by `deflate`.
        self._stream = zlib.decompressobj(zlib.MAX_WBITS | 32)
        self._encoded_bytes = self.decoded_bytes = 0
        self._full = False

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Yield a piece decompressed, at most STEP bytes at a time. Raises CorruptEncoding.

        The decoded size is compared with the bytes taken in so far, not with those that have arrived.
        """
        for start in range(0, len(data), _INTAKE):
            yield from self._decode_slice(data[start : start + _INTAKE])

    def _decode_slice(self, data: bytes) -> Iterator[bytes]:
        self._encoded_bytes += len(data)
        while data or self._full:
            if self._stream.eof:
                raise CorruptEncoding("goes on behind its compressed end")
            try:
                piece = self._stream.decompress(data, STEP)
            except zlib.error:
                raise CorruptEncoding("is not compressed as it says") from None
            data = self._stream.unconsumed_tail or self._stream.unused_data
            # All may have been taken in, and not yet all been given out.
            self._full = len(piece) == STEP and not self._stream.eof
            self.decoded_bytes += len(piece)
            if self.decoded_bytes > RATIO_FREE and self.decoded_bytes > MAX_RATIO * self._encoded_bytes:
                raise CorruptEncoding(f"becomes more than {MAX_RATIO} times as long when it is unpacked")
            if piece:
                yield piece

    def finish(self) -> None:
        """Raise CorruptEncoding where the compressed bytes were cut off; none at all are an empty body."""
        if self._encoded_bytes and not self._stream.eof:
            raise CorruptEncoding("was cut off before its compressed end")

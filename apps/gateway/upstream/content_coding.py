"""Content decoding: decompress an answer in small bounded steps; a megabyte of gzip may hold a gigabyte."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

# The supported values of `Content-Encoding`; an empty one and `identity` mean no encoding.
CODINGS: Final = frozenset({"gzip", "x-gzip", "deflate"})
# Bytes that a step decodes at most, and that it takes in: the rest of them is copied at every step.
STEP: Final = 64 * 1024
_INTAKE: Final = 8 * 1024
# Answers that begin with a megabyte or more become at most so many times as long; the densest text recorded, 60 times.
_FREE, MAX_RATIO = 1024 * 1024, 200


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
            if self.decoded_bytes > _FREE and self.decoded_bytes > MAX_RATIO * self._encoded_bytes:
                raise CorruptEncoding(f"becomes more than {MAX_RATIO} times as long when it is unpacked")
            if piece:
                yield piece

    def finish(self) -> None:
        """Raise CorruptEncoding where the compressed bytes were cut off; none at all are an empty body."""
        if self._encoded_bytes and not self._stream.eof:
            raise CorruptEncoding("was cut off before its compressed end")

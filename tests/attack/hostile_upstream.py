"""A provider that means harm: answers that unpack to a gigabyte, are 200 MB long, or large and kept. Run as a process.

Speaks just enough of OpenAI's format. Holds an answer only once in memory.
"""

from __future__ import annotations

import struct
import sys
import zlib
from contextlib import suppress
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_START = b'{"id":"x","object":"chat.completion","choices":[{"index":0,"finish_reason":"stop","message":{"content":"'
_END = b'"}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}'
_PIECE = b"a" * 1_048_576


@cache
def bomb(megabytes: int) -> bytes:
    """Return a whole answer, packed, whose text has so many megabytes: one packed megabyte, again and again."""
    start, piece, end = (_packed(part) for part in (_START, _PIECE, _END))
    size, crc = len(_START) + megabytes * len(_PIECE) + len(_END), zlib.crc32(_START)
    for _ in range(megabytes):
        crc = zlib.crc32(_PIECE, crc)
    trailer = struct.pack("<II", zlib.crc32(_END, crc), size & 0xFFFFFFFF)
    return b"\x1f\x8b\x08" + bytes(6) + b"\xff" + start + piece * megabytes + end + b"\x03\x00" + trailer


def _packed(data: bytes) -> bytes:
    """Return data packed so that it may stand behind anything, and anything behind it."""
    packing = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packing.compress(data) + packing.flush(zlib.Z_FULL_FLUSH)


class Handler(BaseHTTPRequestHandler):
    """Answers by the model that is asked for."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Say that it is there."""
        self._start("Content-Length", "2")
        self.wfile.write(b"{}")

    def do_POST(self) -> None:
        """Answer with a bomb, or at length."""
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        try:
            if b'"bomb"' in body:
                packed = bomb(1024)
                self._start("Content-Length", str(len(packed)), ("Content-Encoding", "gzip"))
                self.wfile.write(packed)
            elif b'"kept"' in body:
                answer = _START + b"a" * 680_000 + _END
                self._start("Content-Length", str(len(answer)))
                self.wfile.write(answer)
            else:
                self._start("Content-Length", str(len(_START) + 200 * len(_PIECE) + len(_END)))
                self.wfile.write(_START)
                for _ in range(200):
                    self.wfile.write(_PIECE)
                self.wfile.write(_END)
        except OSError:
            # The client has closed the connection.
            self.close_connection = True

    def handle(self) -> None:
        """Serve a connection, which may end at any time."""
        with suppress(OSError):
            super().handle()

    def _start(self, name: str, value: str, *more: tuple[str, str]) -> None:
        self.send_response(200)
        for key, words in ((name, value), ("Content-Type", "application/json"), *more):
            self.send_header(key, words)
        self.end_headers()

    def log_message(self, *words: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()

"""Event stream of an MCP server (server-sent events): from bytes to the data of complete events.

The gateway's own framing is in a higher layer, which this app cannot import.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def events(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the data of each event with data; the caller limits the number of bytes.

    A resumable stream begins with an event that has an id and no data.
    """
    data: list[bytes] = []
    for line in _lines(chunks):
        if not line:
            if any(data):
                yield b"\n".join(data)
            data.clear()
        elif line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
    if any(data):
        # Some servers omit the blank line at the end.
        yield b"\n".join(data)


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines without their endings: LF, CR or CRLF."""
    parts: list[bytes] = []
    after_cr = False
    for chunk in chunks:
        if after_cr and chunk[:1] == b"\n":
            # The second half of a CRLF.
            chunk = chunk[1:]
        if not chunk:
            after_cr = False
            continue
        after_cr = chunk[-1:] == b"\r"
        lines = chunk.splitlines(keepends=True)
        for line in lines:
            bare = line.rstrip(b"\r\n")
            parts.append(bare)
            if len(bare) < len(line):
                yield b"".join(parts)
                parts.clear()
    if parts:
        yield b"".join(parts)

"""Event stream of an MCP server (server-sent events): bytes as they arrive to the data of whole events.

Beside the gateway's own framing, which stands above this app. Must never know what the data means.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def events(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the data of each event that has any; whoever gives the chunks bounds how many bytes there are.

    A stream that can be resumed begins with an event that has an id and nothing to say.
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
        # Some forget the blank line at the end.
        yield b"\n".join(data)


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines without their ends, which are LF, CR or CRLF."""
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

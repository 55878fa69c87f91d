"""Plain requests: POSTs that are all there and can be read in one way only, told from their bytes alone.

Knows the form that nearly every SDK sends. Must never take for plain what the request parser refuses, or frames in
another way: whatever is not plain is left to it.
"""

from __future__ import annotations

import re

from gateway_project.http.request_parser import HeadLimits

# Bytes of a head that is looked at, and digits of a body's length.
_MOST_HEAD, _MOST_DIGITS = 4096, 6
# Names that HTTP has (RFC 9110, 5.1), values without control characters, no line folded. Headers that say how the
# request is framed, or that the client waits for something, are the parser's to read; so is an id of the client's own,
# which its answer repeats.
_HEAD = re.compile(
    rb"POST (/[\w./:~-]*) HTTP/1\.1"
    rb"(?i:\r\n(?!transfer-encoding:|(?:proxy-)?connection:(?! keep-alive\r)|upgrade:|expect:|x-request-id:)"
    rb"[\w!#$%&'*+.^`|~-]+:[\t\x20-\x7e\x80-\xff]*+)+\r\n\r\n"
)
_LENGTH = re.compile(rb"\r\ncontent-length: ?([0-9]{1,%d})\r\n" % _MOST_DIGITS)


def path_of_plain(data: bytes, limits: HeadLimits) -> str | None:
    """Return the path of a plain request that is exactly these bytes; None for anything else."""
    match = _HEAD.match(data, 0, min(_MOST_HEAD, limits.line, limits.header))
    if match is None:
        return None
    head = data[: match.end()].lower()
    length = _LENGTH.search(head)
    if (
        length is None
        or head.count(b"\r\ncontent-length:") != 1
        or head.count(b"\r\nhost:") != 1
        # Of the lines' ends, two are none of a header's.
        or head.count(b"\r\n") - 2 > limits.headers
        or len(data) - match.end() != int(length[1])
    ):
        return None
    return match[1].decode("ascii")

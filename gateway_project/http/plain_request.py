"""Plain requests: POSTs that are all there and can be read in one way only, told from their bytes alone.

This is the form that nearly every SDK sends. A request that the request parser would reject or frame differently is
never plain; everything that is not plain is left to the parser.
"""

from __future__ import annotations

import re

from gateway_project.http.request_parser import HeadLimits

# Bytes of a head that is looked at, and digits of a body's length.
_MAX_HEAD, _MAX_DIGITS = 4096, 6
# Names that HTTP has (RFC 9110, 5.1), values without control characters, no line folded. Headers that say how the
# request is framed, or that the client waits for something, are the parser's to read; so is an id of the client's own,
# which its answer repeats.
_HEAD = re.compile(
    rb"POST (/[\w./:~-]*) HTTP/1\.1"
    rb"(?i:\r\n(?!transfer-encoding:|(?:proxy-)?connection:(?! keep-alive\r)|upgrade:|expect:|x-request-id:)"
    rb"[\w!#$%&'*+.^`|~-]+:[\t\x20-\x7e\x80-\xff]*+)+\r\n\r\n"
)
_LENGTH = re.compile(rb"\r\ncontent-length: ?([0-9]{1,%d})\r\n" % _MAX_DIGITS)


def path_of_plain(data: bytes, limits: HeadLimits) -> str | None:
    """Return the path of a plain request that is exactly these bytes; None for anything else."""
    match = _HEAD.match(data, 0, min(_MAX_HEAD, limits.line, limits.header))
    if match is None:
        return None
    head = data[: match.end()].lower()
    length = _LENGTH.search(head)
    if (
        length is None
        or head.count(b"\r\ncontent-length:") != 1
        or head.count(b"\r\nhost:") != 1
        # Two of the line ends do not belong to a header.
        or head.count(b"\r\n") - 2 > limits.headers
        or len(data) - match.end() != int(length[1])
    ):
        return None
    return match[1].decode("ascii")

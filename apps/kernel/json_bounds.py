"""JSON bounds (denial-of-service limits), checked on the bytes before parsing: values, depth, names, digits.

A few bytes of JSON can become a hundred times as much memory, and seconds of parsing. This counts first, piece by piece
at the speed of C, and stops at the first bound that is exceeded. It does not validate the JSON: a parser does that
next, and reads no further than was counted here. Beside them stand the bounds of uploads.
"""

from __future__ import annotations

import sys
from array import array
from itertools import accumulate
from typing import Any, Final, NamedTuple

import msgspec

# Bytes per step; other threads may run in between.
_PIECE: Final = 64 * 1024
_ESCAPED_BACKSLASH, _ESCAPED_QUOTE = rb"\\", rb"\""
# It has the same length, so that lengths of strings stay the same.
_STAND_IN: Final = b"__"
# Some encoders write base64 in lines of 64 characters or more, or escape its slashes: one escape per this many
# characters.
_ESCAPES_IN_BASE64: Final = 16
_WHITE_SPACE: Final = b" \t\r\n"
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
# Opening brackets add a level, closing ones remove one (255 is -1 in a signed byte).
_LEVELS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_OF_NUMBERS: Final = b"0123456789+-.eE"
_NUMBERS: Final = bytes(ord("0") if code in _OF_NUMBERS else ord(",") for code in range(256))


class Bounds(NamedTuple):
    """The maximums of JSON.

    `values` are entries of arrays and objects, counting an empty one as one, and the whole; `depth` is the nesting of
    arrays and objects; `name` is bytes of an object's key, `digits` characters of a number. `text` is bytes that are
    slow to tokenize: 64 KB pieces with spaces, more than a few escapes, or non-ASCII characters. Base64 does not count.
    """

    values: int
    depth: int
    name: int
    digits: int
    text: int = sys.maxsize


class OutOfBounds(ValueError):
    """JSON exceeds a bound; the message continues "The request body". `bound` names it."""

    def __init__(self, bound: str, message: str) -> None:
        super().__init__(message)
        self.bound = bound


def decode_within(data: bytes, bounds: Bounds) -> Any:
    """Return the value of JSON. Raises OutOfBounds, and msgspec.DecodeError or UnicodeDecodeError for invalid JSON."""
    check(data, bounds)
    return msgspec.json.decode(data)


def decode_text_within(text: str, bounds: Bounds) -> Any:
    """Return the value of JSON in a string. Raises as `decode_within` does; short texts may be deep."""
    if len(text) > min(bounds.values, bounds.name, bounds.digits):
        check(text.encode("utf-8", "surrogatepass"), bounds)
    return msgspec.json.decode(text)


def check(data: bytes, bounds: Bounds) -> None:
    """Raise OutOfBounds unless JSON is within bounds. Invalid JSON is checked up to the first error."""
    size = len(data)
    if (
        size <= bounds.name
        and size <= bounds.digits
        and size <= bounds.values
        # It cannot be deeper than its number of opening brackets; usual bodies end here.
        and (size <= bounds.depth or data.count(b"{") + data.count(b"[") <= bounds.depth)
    ):
        return
    if size > bounds.text:
        # First, because it is much faster than counting, for bodies that no model could read.
        _check_text(data, bounds.text)
    scan = _Scan(bounds)
    for start in range(0, size, _PIECE):
        scan.take(data[start : start + _PIECE])


def _check_text(data: bytes, most: int) -> None:
    text = 0
    for start in range(0, len(data), _PIECE):
        piece = data[start : start + _PIECE]
        if _is_text(piece):
            text += len(piece)
            if text > most:
                raise OutOfBounds("text", f"holds more than {most} bytes of text")


def _is_text(piece: bytes) -> bool:
    return b" " in piece or not piece.isascii() or piece.count(b"\\") > len(piece) // _ESCAPES_IN_BASE64


class _Scan:
    """The counts so far."""

    __slots__ = ("_bounds", "_depth", "_ended_long", "_escape", "_in_string", "_number", "_string", "_values")

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._values, self._depth = 1, 0
        # Bytes so far of an unfinished string, and whether there is one.
        self._in_string, self._string = False, 0
        # Whether the last string was longer than a name may be: a following colon makes it a name.
        self._ended_long = False
        # A backslash without its second half; the characters of an unfinished number.
        self._escape = self._number = b""

    def take(self, piece: bytes) -> None:
        """Count a piece. Raises OutOfBounds."""
        if self._escape or b"\\" in piece:
            piece = (self._escape + piece).replace(_ESCAPED_BACKSLASH, _STAND_IN)
            self._escape = b"\\" if piece.endswith(b"\\") else b""
            piece = piece.removesuffix(b"\\").replace(_ESCAPED_QUOTE, _STAND_IN)
        parts = piece.split(b'"')
        # Parts alternate; those at odd positions are strings, unless the piece begins within one.
        within = self._in_string
        self._measure_strings(parts, within)
        # A quote represents each string.
        marks = b'"'.join(parts[1::2] if within else parts[::2])
        if within and len(parts) > 1:
            marks = b'"' + marks
        self._in_string = within == (len(parts) % 2 == 1)
        self._count(marks)

    def _measure_strings(self, parts: list[bytes], within: bool) -> None:
        """Look for names that are too long."""
        longest = self._bounds.name
        strings = parts[::2] if within else parts[1::2]
        if within:
            strings[0] = strings[0] if not self._string else b"_" * min(self._string + len(strings[0]), longest + 1)
        if self._ended_long or max(map(len, strings), default=0) > longest:
            self._look_for_names(parts, strings, within)
        last_is_open = within == (len(parts) % 2 == 1)
        self._string = len(strings[-1]) if last_is_open and strings else 0

    def _look_for_names(self, parts: list[bytes], strings: list[bytes], within: bool) -> None:
        outside = parts[1::2] if within else parts[::2]
        if not within and self._ended_long:
            self._follow(outside[0], last=len(parts) == 1)
        for place, string in enumerate(strings):
            behind = place if within else place + 1
            if len(string) > self._bounds.name and behind < len(outside):
                self._ended_long = True
                self._follow(outside[behind], last=behind == len(outside) - 1 and not strings[place + 1 :])

    def _follow(self, marks: bytes, *, last: bool) -> None:
        """Refuse a colon after a long string; white space up to the end of a piece leaves it open."""
        marks = marks.lstrip(_WHITE_SPACE)
        if marks.startswith(b":"):
            raise OutOfBounds("name", f"holds a name longer than {self._bounds.name} bytes")
        self._ended_long = last and not marks

    def _count(self, marks: bytes) -> None:
        """Count values, levels and digits outside of strings."""
        bounds = self._bounds
        opens = marks.count(b"[") + marks.count(b"{")
        self._values += opens + marks.count(b",")
        if self._values > bounds.values:
            raise OutOfBounds("values", f"holds more than {bounds.values} values")
        if opens:
            levels = array("b", marks.translate(_LEVELS, _NOT_BRACKETS))
            if self._depth + opens > bounds.depth and max(accumulate(levels, initial=self._depth)) > bounds.depth:
                raise OutOfBounds("depth", f"is nested too deeply: more than {bounds.depth} levels")
            self._depth += 2 * opens - len(levels)
        else:
            self._depth -= marks.count(b"]") + marks.count(b"}")
        if len(marks) + len(self._number) > bounds.digits:
            numbers = (self._number + marks).translate(_NUMBERS)
            if b"0" * (bounds.digits + 1) in numbers:
                raise OutOfBounds("digits", f"holds a number longer than {bounds.digits} characters")
            self._number = numbers[len(numbers.rstrip(b"0")) :]
        else:
            self._number += marks
            self._number = self._number[len(self._number.rstrip(_OF_NUMBERS)) :]


# Bytes of a part of a file, as OpenAI's API has it, and of all in a form that is not its file.
MAX_FILE_PART: Final = 64 * 1024 * 1024
FORM_ROOM: Final = 64 * 1024

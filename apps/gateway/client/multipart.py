"""Multipart form parser: a `multipart/form-data` body, whole or in pieces as it arrives, read strictly and bounded.

A body that is not exactly a form is refused. Pieces may be cut anywhere: the parts are the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from email.message import Message
from typing import NamedTuple

from apps.gateway.dialects.media import FormField
from apps.kernel.errors import InvalidRequest

MULTIPART = "multipart/form-data"
# Parts of a form: sixteen images, a mask, and all options, twice.
MAX_PARTS = 64
_MAX_HEAD = 4_096
# The end of the boundary behind the last part.
_LAST = b"--"
_CUT_SHORT, _HEADLESS = "it ends before its last boundary", "a part of it has no head"
_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")


class PartHead(NamedTuple):
    """The head of a part; `filename` is None unless it is a file."""

    name: str
    filename: str | None


class _Incoming:
    """The bytes of a body that have arrived and are not read yet."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        # The first boundary may begin the body, without the line break that belongs to every other.
        self.held = bytearray(b"\r\n")

    def wait(self) -> bool:
        """Take in the next piece; return whether there was one."""
        piece = next(self._pieces, None)
        if piece is None:
            return False
        self.held += piece
        return True

    def take(self, size: int) -> bytes:
        """Return the next bytes, and forget them."""
        with memoryview(self.held) as view:
            taken = bytes(view[:size])
        del self.held[:size]
        return taken


def read_form(body: bytes, content_type: str) -> list[FormField]:
    """Return the parts of a form in their order. Raises InvalidRequest."""
    if body.count(b"\r\n--" + _boundary_of(content_type).encode()) > MAX_PARTS + 1:
        raise _too_many_parts()
    return [FormField(*head, b"".join(data)) for head, data in parts_of((body,), content_type)]


def parts_of(pieces: Iterable[bytes], content_type: str) -> Iterator[tuple[PartHead, Iterator[bytes]]]:
    """Yield each part of a form: its head, and its data in pieces, to be read before the next part is asked for.

    Holds one piece and a head at a time. Raises InvalidRequest, and what `pieces` raises.
    """
    boundary = b"\r\n--" + _boundary_of(content_type).encode()
    incoming = _Incoming(pieces)
    # Bytes before the first boundary are no part of the form.
    for _ in _data_of(incoming, boundary, "the boundary does not occur in it"):
        pass
    parts = 0
    while (head := _read_head(incoming, boundary)) is not None:
        parts += 1
        if parts > MAX_PARTS:
            raise _too_many_parts()
        data = _data_of(incoming, boundary, _CUT_SHORT)
        yield head, data
        # The unread rest of it is skipped.
        for _ in data:
            pass
    _pass_over_the_rest(incoming, boundary)


def _data_of(incoming: _Incoming, boundary: bytes, without: str) -> Iterator[bytes]:
    """Yield what comes before the next boundary, and take that too. Raises InvalidRequest where there is none."""
    while (place := incoming.held.find(boundary)) < 0:
        # The end of the received bytes may be the beginning of a boundary.
        if (ready := len(incoming.held) - len(boundary) + 1) > 0:
            yield incoming.take(ready)
        if not incoming.wait():
            raise _malformed(without)
    if place:
        yield incoming.take(place)
    del incoming.held[: len(boundary)]


def _read_head(incoming: _Incoming, boundary: bytes) -> PartHead | None:
    """Return the head of the part behind a boundary, None behind the last. Raises InvalidRequest."""
    held = incoming.held
    while len(held) < len(_LAST):
        if not incoming.wait():
            raise _malformed(_CUT_SHORT)
    if held.startswith(_LAST):
        del held[: len(_LAST)]
        return None
    while True:
        line_end = held.find(b"\r\n")
        head_end = held.find(b"\r\n\r\n", line_end + 2) if line_end >= 0 else -1
        # A boundary takes its line break from no head: the data between them may be empty, but it is there.
        data_at = head_end + 4
        next_boundary = held.find(boundary, 0, data_at + len(boundary) if head_end >= 0 else len(held))
        if next_boundary >= 0 and (head_end < 0 or next_boundary < data_at):
            raise _malformed(_HEADLESS)
        if head_end >= 0 and len(held) >= data_at - 2 + len(boundary):
            break
        if (head_end if head_end >= 0 else len(held)) > _MAX_HEAD:
            raise _malformed("a part of it has too long a head")
        if not incoming.wait():
            raise _malformed(_CUT_SHORT)
    # Blanks may follow a boundary on its line.
    padding, _, head = incoming.take(head_end).partition(b"\r\n")
    del held[:4]
    if padding.strip(b" \t"):
        raise _malformed(_HEADLESS)
    return _parse_head(head)


def _pass_over_the_rest(incoming: _Incoming, boundary: bytes) -> None:
    """Read what stands behind the last boundary, which is no part of the form. Raises InvalidRequest for another."""
    while True:
        if boundary in incoming.held:
            raise _malformed(_HEADLESS)
        del incoming.held[: max(0, len(incoming.held) - len(boundary) + 1)]
        if not incoming.wait():
            return


def _boundary_of(content_type: str) -> str:
    boundary = _parameters_of("Content-Type", content_type).get("boundary", "")
    if not _BOUNDARY.fullmatch(boundary):
        raise _malformed("its Content-Type names no boundary")
    return boundary


def _parse_head(head: bytes) -> PartHead:
    if len(head) > _MAX_HEAD:
        raise _malformed("a part of it has too long a head")
    headers = _headers_of(head)
    if headers.get("content-transfer-encoding", "binary").lower() not in {"binary", "8bit", "7bit"}:
        raise _malformed("a part of it is encoded")
    disposition = headers.get("content-disposition", "")
    kind, parameters = disposition.partition(";")[0].strip().lower(), _parameters_of("x", disposition)
    if kind != "form-data" or not parameters.get("name"):
        raise _malformed("a part of it has no name")
    return PartHead(parameters["name"][:200], parameters.get("filename"))


def _headers_of(head: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in head.decode("utf-8", "replace").split("\r\n"):
        name, colon, value = line.partition(":")
        if not colon or not name.strip() or name.strip().lower() in headers:
            raise _malformed("a part of it has a malformed head")
        headers[name.strip().lower()] = value.strip()
    return headers


def _parameters_of(name: str, value: str) -> dict[str, str]:
    """Return the parameters of a header's value by their lower-case names, unquoted."""
    message = Message()
    message[name] = value.replace("\r", " ").replace("\n", " ")
    found = message.get_params(failobj=[], header=name)
    return {key.lower(): text if isinstance(text, str) else text[2] for key, text in found[1:]}


def _malformed(why: str) -> InvalidRequest:
    return InvalidRequest(f"The request body is not a valid form: {why}", code="invalid_parameters")


def _too_many_parts() -> InvalidRequest:
    return InvalidRequest(f"The form has more than {MAX_PARTS} parts", code="invalid_parameters")

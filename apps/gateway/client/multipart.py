"""Multipart form parser: read a `multipart/form-data` body strictly, refuse what is not exactly a form, bound its size.

Knows the format of forms. Must never know what a field means.
"""

from __future__ import annotations

import re
from email.message import Message

from apps.gateway.dialects.images.client.image_inputs import FormField
from apps.kernel.errors import InvalidRequest

MULTIPART = "multipart/form-data"
# Parts of a form: sixteen pictures, a mask, and every option there is, twice.
MOST_PARTS = 64
_MOST_HEAD = 4_096
_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")


def read_form(body: bytes, content_type: str) -> list[FormField]:
    """Return the parts of a form in their order. Raises InvalidRequest."""
    mark = b"\r\n--" + _boundary_of(content_type).encode()
    # Whatever stands before the first boundary is no part of the form.
    first, *pieces = (b"\r\n" + body).split(mark, MOST_PARTS + 2)
    if not pieces:
        raise _malformed("the boundary does not occur in it")
    if len(pieces) > MOST_PARTS + 1:
        raise InvalidRequest(f"The form has more than {MOST_PARTS} parts", code="invalid_parameters")
    if not pieces[-1].startswith(b"--"):
        raise _malformed("it ends before its last boundary")
    del first
    return [_read_part(piece) for piece in pieces[:-1]]


def _boundary_of(content_type: str) -> str:
    boundary = _parameters_of("Content-Type", content_type).get("boundary", "")
    if not _BOUNDARY.fullmatch(boundary):
        raise _malformed("its Content-Type names no boundary")
    return boundary


def _read_part(piece: bytes) -> FormField:
    # Blanks may follow a boundary on its line.
    padding, line_end, rest = piece.partition(b"\r\n")
    head, blank_line, data = rest.partition(b"\r\n\r\n")
    if padding.strip(b" \t") or not line_end or not blank_line:
        raise _malformed("a part of it has no head")
    if len(head) > _MOST_HEAD:
        raise _malformed("a part of it has too long a head")
    headers = _headers_of(head)
    if headers.get("content-transfer-encoding", "binary").lower() not in {"binary", "8bit", "7bit"}:
        raise _malformed("a part of it is encoded")
    disposition = headers.get("content-disposition", "")
    kind, parameters = disposition.partition(";")[0].strip().lower(), _parameters_of("x", disposition)
    if kind != "form-data" or not parameters.get("name"):
        raise _malformed("a part of it has no name")
    return FormField(parameters["name"][:200], parameters.get("filename"), data)


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

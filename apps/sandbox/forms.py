"""Multipart forms as the sandbox reads them: fields by name, and one file. Knows no format."""

from __future__ import annotations

import re
from typing import NamedTuple

from apps.sandbox.refusal import SandboxRefusal

_DISPOSITION = re.compile(rb'form-data; name="([^"]+)"(?:; filename="([^"]*)")?', re.IGNORECASE)


class Form(NamedTuple):
    """A form: its fields, the same one several times maybe, and its file, with its name."""

    fields: list[tuple[str, str]]
    filename: str
    data: bytes


def read_form(body: bytes) -> Form:
    """Return the fields and the file of a form; its first line is the boundary. Raises SandboxRefusal."""
    mark, _, _ = body.partition(b"\r\n")
    pieces = (b"\r\n" + body).split(b"\r\n" + mark)
    if not mark.startswith(b"--") or pieces[0] or pieces[-1] != b"--\r\n":
        raise SandboxRefusal(400, "Could not parse multipart form")
    fields: list[tuple[str, str]] = []
    file: tuple[str, bytes] | None = None
    for piece in pieces[1:-1]:
        head, _, data = piece.partition(b"\r\n\r\n")
        found = _DISPOSITION.search(head)
        if found is None:
            raise SandboxRefusal(400, "Could not parse multipart form")
        if found[2] is None:
            fields.append((found[1].decode(), data.decode()))
        elif file is None and found[1] == b"file":
            file = found[2].decode(), data
        else:
            raise SandboxRefusal(400, "There is one file, in `file`", param=found[1].decode())
    if file is None:
        raise SandboxRefusal(400, "'file' is required", param="file")
    return Form(fields, *file)

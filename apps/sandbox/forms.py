"""Multipart forms as the sandbox reads them: fields by name, and files."""

from __future__ import annotations

import re
from typing import NamedTuple

from apps.sandbox.scenario import SandboxRefusal

_DISPOSITION = re.compile(rb'form-data; name="([^"]+)"(?:; filename="([^"]*)")?', re.IGNORECASE)


class Form(NamedTuple):
    """A form: its fields, the same one several times maybe, and its file, with its name."""

    fields: list[tuple[str, str]]
    filename: str
    data: bytes


def read_parts(body: bytes) -> tuple[list[tuple[str, str]], list[tuple[str, str, bytes]]]:
    """Return the fields of a form, and its files: their field, name and content.

    Its first line is the boundary. Raises SandboxRefusal.
    """
    mark, _, _ = body.partition(b"\r\n")
    pieces = (b"\r\n" + body).split(b"\r\n" + mark)
    if not mark.startswith(b"--") or pieces[0] or pieces[-1] != b"--\r\n":
        raise SandboxRefusal(400, "Could not parse multipart form")
    fields: list[tuple[str, str]] = []
    files: list[tuple[str, str, bytes]] = []
    for piece in pieces[1:-1]:
        head, _, data = piece.partition(b"\r\n\r\n")
        found = _DISPOSITION.search(head)
        if found is None:
            raise SandboxRefusal(400, "Could not parse multipart form")
        if found[2] is None:
            fields.append((found[1].decode(), data.decode()))
        else:
            files.append((found[1].decode(), found[2].decode(), data))
    return fields, files


def read_form(body: bytes) -> Form:
    """Return the fields and the file of a form. Raises SandboxRefusal."""
    fields, files = read_parts(body)
    if not files:
        raise SandboxRefusal(400, "'file' is required", param="file")
    for name, _, _ in files[1:] if files[0][0] == "file" else files:
        raise SandboxRefusal(400, "There is one file, in `file`", param=name)
    return Form(fields, *files[0][1:])

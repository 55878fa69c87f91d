"""Asking for pictures through the gateway, and what pictures are made of."""

from __future__ import annotations

import json
import struct
from base64 import b64decode, b64encode
from typing import Any

from apps.sandbox.generated_media import paint
from tests.support.upstream import Caller

PNG = paint("8x8", "an input")
OTHER = paint("8x8", "another input")
MASK = paint("8x8", "a mask")
BOUNDARY = "a-boundary"


def data_url(data: bytes, media_type: str = "image/png") -> str:
    """Return a picture as a client writes it into JSON."""
    return f"data:{media_type};base64,{b64encode(data).decode()}"


def generate(caller: Caller, prompt: Any = "a cat", **fields: Any) -> Any:
    """Ask for new pictures, of `painter` unless `model` says otherwise; a field that is None is left out."""
    return _post(caller, "generations", {"model": "painter", "prompt": prompt, **fields})


def edit(caller: Caller, prompt: Any = "a cat", **fields: Any) -> Any:
    """Ask to change a picture, in JSON."""
    images = [{"image_url": data_url(PNG)}]
    return _post(caller, "edits", {"model": "painter", "prompt": prompt, "images": images, **fields})


def edit_form(caller: Caller, *parts: tuple[str, str | bytes], **fields: str) -> Any:
    """Ask to change pictures with a form; `parts` of bytes are files, `fields` its other fields."""
    stated: dict[str, str] = {"model": "painter", "prompt": "a cat", **fields}
    return send_form(caller, write_form(*parts, *stated.items()))


def send_form(caller: Caller, body: bytes, content_type: str = f"multipart/form-data; boundary={BOUNDARY}") -> Any:
    """Send a form as it is."""
    headers = {"Authorization": f"Bearer {caller.token}"}
    return caller.client.generic("POST", "/v1/images/edits", body, content_type=content_type, headers=headers)


def write_form(*parts: tuple[str, str | bytes]) -> bytes:
    """Return a form's body."""
    written = b""
    for name, value in parts:
        filename = '; filename="p.png"\r\nContent-Type: image/png' if isinstance(value, bytes) else ""
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{filename}\r\n\r\n'
        written += head.encode() + (value if isinstance(value, bytes) else value.encode()) + b"\r\n"
    return written + f"--{BOUNDARY}--\r\n".encode()


def size_of(b64_json: str) -> tuple[int, int]:
    """Return width and height of a PNG."""
    data = b64decode(b64_json, validate=True)
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        raise ValueError("no PNG")
    width, height = struct.unpack(">II", data[16:24])
    return int(width), int(height)


def _post(caller: Caller, what: str, fields: dict[str, Any]) -> Any:
    headers = {"Authorization": f"Bearer {caller.token}", **fields.pop("headers", {})}
    body = json.dumps({name: value for name, value in fields.items() if value is not None})
    return caller.client.post(f"/v1/images/{what}", body, content_type="application/json", headers=headers)

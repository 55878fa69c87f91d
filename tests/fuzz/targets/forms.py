"""Forms of clients: taken or refused by `InvalidRequest`, and never more than was sent."""

from __future__ import annotations

import contextlib

from apps.gateway.client.multipart import MAX_PARTS, read_form
from apps.gateway.dialects.media.images.client import read_edit, read_edit_form, read_generation
from apps.kernel.errors import InvalidRequest
from tests.fuzz.target import Target

_PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
_PART = b'--b\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
_FILE = b'--b\r\nContent-Disposition: form-data; name="image[]"; filename="a.png"\r\n\r\n%s\r\n'
SEEDS = [
    b"multipart/form-data; boundary=b\n" + _PART % (b"prompt", b"a fox") + _FILE % _PNG + b"--b--\r\n",
    b'multipart/form-data; boundary="b"\nbefore\r\n' + _PART % (b"n", b"2") + _PART % (b"size", b"64x64") + b"--b--",
    b"multipart/form-data; charset*=utf-8''%e2%82; boundary=b\n--b  \r\n\r\n\r\n\r\n--b--\r\n",
]
JSON_SEEDS = [
    b'{"prompt":"a fox","model":"painter","n":2,"size":"64x64","quality":"high","background":"opaque"}',
    b'{"prompt":"a","images":["data:image/png;base64,iVBORw0KGgoAAAAA"],"mask":"data:image/png;base64,iVBORw0KGgo="}',
]


def run_form(data: bytes) -> None:
    """Read a form whose content type is the first line, and what it asks for."""
    content_type, _, body = data.partition(b"\n")
    try:
        form = read_form(body, content_type.decode("latin-1"))
    except InvalidRequest:
        return
    assert len(form) <= MAX_PARTS
    assert sum(len(field.data) for field in form) <= len(body)
    with contextlib.suppress(InvalidRequest):
        read_edit_form(form)


def run_images(data: bytes) -> None:
    """Read requests for pictures in JSON."""
    for reader in (read_generation, read_edit):
        with contextlib.suppress(InvalidRequest):
            assert reader(data).image_request is not None


TARGETS = [
    Target("multipart", run_form, lambda: SEEDS),
    Target("images_request", run_images, lambda: JSON_SEEDS, shape="json"),
]

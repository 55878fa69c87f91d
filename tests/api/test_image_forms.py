"""Image forms: read strictly, and each fault is reported before anything happens (section 4.10)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.image_requests import BOUNDARY, MASK, PNG, edit_form, send_form, write_form
from tests.support.upstream import Caller, nothing_happened


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ([("prompt", "a")], "image: Required"),
        ([("image", PNG)], "prompt: Required"),
        ([("image", "no file"), ("prompt", "a")], "image: must be a file"),
        ([("image", b"no picture"), ("prompt", "a")], "image: must be a PNG, JPEG, WebP or GIF image"),
        ([("image[]", PNG)] * 17 + [("prompt", "a")], "image: must hold 1 to 16 images"),
        ([("image", PNG), ("mask", MASK), ("mask", MASK), ("prompt", "a")], "mask: must be given once"),
        ([("image", PNG), ("prompt", "a"), ("prompt", "b")], "prompt: must be given once"),
        ([("image", PNG), ("prompt", b"a")], "prompt: must not be a file"),
        ([("image", PNG), ("prompt", "a"), ("n", "two")], "n: must be an integer"),
        ([("image", PNG), ("prompt", "a"), ("n", "99")], "n: must be between 1 and 10"),
        ([("image", PNG), ("prompt", "a"), ("size", "huge")], "size: must be auto or WIDTHxHEIGHT, such as 1024x1024"),
    ],
)
def test_a_field_of_a_form_that_is_wrong_is_named(caller: Caller, parts: list[Any], problem: str) -> None:
    response = send_form(caller, write_form(("model", "painter"), *parts))
    assert (response.status_code, response.json()["message"]) == (400, f"Invalid request parameters: {problem}")
    assert response.json()["error"]["param"] == problem.partition(":")[0]
    assert nothing_happened(caller)


FORM = "multipart/form-data; boundary=a-boundary"
HEAD = b'Content-Disposition: form-data; name="prompt"'


@pytest.mark.parametrize(
    ("body", "content_type", "why"),
    [
        (b"x", FORM, "the boundary does not occur in it"),
        (write_form(("prompt", "a")), "multipart/form-data", "its Content-Type names no boundary"),
        (write_form(("prompt", "a")), "multipart/form-data; boundary=", "its Content-Type names no boundary"),
        (
            write_form(("prompt", "a")),
            f"multipart/form-data; boundary={'x' * 71}",
            "its Content-Type names no boundary",
        ),
        (write_form(("prompt", "a")), "multipart/form-data; boundary=another", "the boundary does not occur in it"),
        (write_form(("prompt", "a"))[:-8], FORM, "it ends before its last boundary"),
        (b"--a-boundary\r\n" + HEAD + b"\r\n\r\na", FORM, "it ends before its last boundary"),
        (b"--a-boundary\r\n\r\n\r\na\r\n--a-boundary--\r\n", FORM, "a part of it has a malformed head"),
        (b"--a-boundary\r\nX-Y: z\r\n\r\na\r\n--a-boundary--\r\n", FORM, "a part of it has no name"),
        (b"--a-boundary\r\n" + HEAD[:-14] + b"\r\n\r\na\r\n--a-boundary--\r\n", FORM, "a part of it has no name"),
        (b"--a-boundary\r\n" + HEAD + b"\r\na\r\n--a-boundary--\r\n", FORM, "a part of it has no head"),
        (b"--a-boundary junk\r\n" + HEAD + b"\r\n\r\na\r\n--a-boundary--", FORM, "a part of it has no head"),
        (
            b"--a-boundary\r\n" + HEAD + b"\r\nContent-Transfer-Encoding: base64\r\n\r\nYQ==\r\n--a-boundary--",
            FORM,
            "a part of it is encoded",
        ),
        (
            b"--a-boundary\r\n" + HEAD + b"x" * 5000 + b"\r\n\r\na\r\n--a-boundary--",
            FORM,
            "a part of it has too long a head",
        ),
        (
            b"--a-boundary\r\n" + HEAD + b"\r\n" + HEAD + b"\r\n\r\na\r\n--a-boundary--",
            FORM,
            "a part of it has a malformed head",
        ),
    ],
)
def test_what_is_not_exactly_a_form_is_refused(caller: Caller, body: bytes, content_type: str, why: str) -> None:
    response = send_form(caller, body, content_type)
    message = f"The request body is not a valid form: {why}"
    assert (response.status_code, response.json()["message"]) == (400, message)
    assert nothing_happened(caller)


def test_a_form_of_too_many_parts_is_refused(caller: Caller) -> None:
    body = write_form(*[("image", PNG), ("prompt", "a")], *[(f"x{number}", "1") for number in range(63)])
    response = send_form(caller, body)
    assert (response.status_code, response.json()["message"]) == (400, "The form has more than 64 parts")
    flood = send_form(caller, b"--" + BOUNDARY.encode() + (b"\r\n--" + BOUNDARY.encode()) * 100_000)
    assert (flood.status_code, flood.json()["message"]) == (400, "The form has more than 64 parts")
    assert nothing_happened(caller)


def test_fields_that_nobody_knows_are_told_and_not_sent_on(caller: Caller) -> None:
    response = edit_form(caller, ("image", PNG), prompt="a hat", negative_prompt="dogs")
    assert (response.status_code, response["x-gateway-loss"]) == (200, "negative_prompt")

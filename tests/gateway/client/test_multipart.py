"""Forms in pieces: the same parts wherever the pieces are cut, a bounded memory, and whatever is malformed refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.gateway.client.multipart import PartHead, parts_of, read_form
from apps.kernel.errors import InvalidRequest

FORM = "multipart/form-data; boundary=b"
PURPOSE = b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
FILE = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\nContent-Type: text/x\r\n\r\n%b\r\n'
END = b"--b--\r\n"
# Bytes that look like a boundary and are none, and those that a boundary begins with.
DATA = b"\r\n--\r\n-b\r\r\n--a\r\n\r\n--" + bytes(range(256)) + b"\r\n-"
BODIES = [
    PURPOSE + FILE % DATA + END,
    b"before\r\n" + FILE % b"" + PURPOSE + END + b"behind",
    PURPOSE + FILE % DATA,
    PURPOSE + FILE % DATA + b"--b-",
    PURPOSE + END + PURPOSE + END,
    b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n--b--\r\n',
    b"--b\r\n--b\r\nX: y\r\n\r\na\r\n--b--",
    b"--b junk\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n--b--",
    b"--b \t\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n--b--",
    b"--b\r\nX: " + b"x" * 5_000 + b"\r\n\r\na\r\n--b--",
    b"--b\r\n" + b"x" * 9_000,
    b"nothing",
    b"",
]


def in_pieces(body: bytes, sizes: list[int]) -> Iterator[bytes]:
    start = 0
    for size in [*sizes, len(body)]:
        if start < len(body):
            yield body[start : start + size]
        start += size


def outcome_of(body: bytes, sizes: list[int]) -> list[tuple[PartHead, bytes]] | str:
    try:
        return [(head, b"".join(data)) for head, data in parts_of(in_pieces(body, sizes), FORM)]
    except InvalidRequest as error:
        return error.message


def test_a_form_is_read_in_pieces() -> None:
    assert outcome_of(BODIES[0], []) == [
        (PartHead("purpose", None), b"batch"),
        (PartHead("file", "a.jsonl"), DATA),
    ]
    assert outcome_of(BODIES[1], []) == [(PartHead("file", "a.jsonl"), b""), (PartHead("purpose", None), b"batch")]


@given(st.sampled_from(BODIES), st.lists(st.integers(1, 40), max_size=400))
def test_the_parts_are_the_same_wherever_the_pieces_are_cut(body: bytes, sizes: list[int]) -> None:
    assert outcome_of(body, sizes) == outcome_of(body, [])


@pytest.mark.parametrize("body", BODIES)
def test_the_parts_are_the_same_byte_by_byte(body: bytes) -> None:
    assert outcome_of(body, [1] * len(body)) == outcome_of(body, [])


@pytest.mark.parametrize(
    ("place", "why"),
    [
        (2, "it ends before its last boundary"),
        (3, "it ends before its last boundary"),
        (4, "a part of it has no head"),
        (5, "a part of it has no head"),
        (6, "a part of it has no head"),
        (7, "a part of it has no head"),
        (9, "a part of it has too long a head"),
        (10, "a part of it has too long a head"),
        (11, "the boundary does not occur in it"),
        (12, "the boundary does not occur in it"),
    ],
)
def test_what_is_no_form_is_refused(place: int, why: str) -> None:
    assert outcome_of(BODIES[place], []) == f"The request body is not a valid form: {why}"


def test_data_comes_while_the_form_still_arrives() -> None:
    arrived = 0

    def pieces() -> Iterator[bytes]:
        nonlocal arrived
        for piece in (PURPOSE + FILE[:-4], *[b"x" * 65_536] * 100, b"\r\n" + END):
            arrived += len(piece)
            yield piece

    read = 0
    for head, data in parts_of(pieces(), FORM):
        for piece in data:
            read += len(piece)
            # No more is held than the piece that came last, and the beginning of a boundary.
            assert arrived - read < 66_000
            assert len(piece) <= 66_000
        del head
    assert read == len(b"batch") + 100 * 65_536


def test_data_that_nobody_reads_is_passed_over() -> None:
    assert [head.name for head, _ in parts_of((FILE % DATA + PURPOSE + END,), FORM)] == ["file", "purpose"]


def test_too_many_parts_are_refused_before_the_rest_is_read() -> None:
    part = b"--b\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n"

    def pieces() -> Iterator[bytes]:
        yield part * 66
        raise AssertionError("the rest was read")

    with pytest.raises(InvalidRequest, match=r"^The form has more than 64 parts$"):
        list(parts_of(pieces(), FORM))
    with pytest.raises(InvalidRequest, match=r"^The form has more than 64 parts$"):
        read_form(part * 65 + END, FORM)
    assert len(read_form(part * 64 + END, FORM)) == 64

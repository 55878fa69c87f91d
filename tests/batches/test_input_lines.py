"""Lines of an input: the same wherever chunks are cut, and bounded as a request of their own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.batches.input_lines import LineReader, WrongLine, lines_of


@given(st.lists(st.binary(max_size=6), max_size=6), st.integers(1, 7))
def test_lines_are_the_same_wherever_chunks_are_cut(lines: list[bytes], size: int) -> None:
    content = b"\n".join(line.replace(b"\n", b"") for line in lines)
    chunks = [content[start : start + size] for start in range(0, len(content), size)]
    expected = content.split(b"\n")
    assert list(lines_of(chunks)) == (expected if expected[-1] else expected[:-1])


@pytest.mark.parametrize("text", [b"", b"\xff", b"null", b'{"custom_id": "a"' + b"," * 50, b"[" * 10_000, b"{}{}"])
def test_what_is_no_object_is_a_wrong_line(text: bytes) -> None:
    with pytest.raises(WrongLine) as wrong:
        LineReader("/v1/chat/completions").read(text, 7)
    assert (wrong.value.error.code, wrong.value.error.line) == ("invalid_json_line", 7)


def test_a_body_is_passed_on_as_it_was_written() -> None:
    body = b'{"model": "m",  "temperature": 1.0, "big": 12345678901234567890}'
    text = b'{"method":"POST","url":"/v1/x","custom_id":"a","other":1,"body":' + body + b"}"
    assert bytes(LineReader("/v1/x").read(text, 1).body) == body

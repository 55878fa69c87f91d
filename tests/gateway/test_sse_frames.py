"""Server-Sent Events come out of any bytes, wherever these are cut into pieces."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.gateway.framing import EventTooLong, sse_frames

ENDS = ("\n", "\r", "\r\n")
# One line of data: anything but the ends of lines.
lines = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=8)


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """Draw the bytes of a stream and the data of its events."""
    written, expected = draw(st.sampled_from(("", "\ufeff"))), []
    for data in draw(st.lists(st.lists(lines, min_size=1, max_size=3), max_size=4)):
        noise = st.sampled_from((": comment", "event: x", "id: 7", "retry: 10", "datum: x", ":"))
        for line in data:
            for other in draw(st.lists(noise, max_size=2)):
                written += other + draw(st.sampled_from(ENDS))
            # Without a space only where the data has none of its own to lose.
            space = " " if line.startswith(" ") else draw(st.sampled_from(("", " ")))
            written += f"data:{space}{line}" + draw(st.sampled_from(ENDS))
        # Two line ends that are not one CRLF.
        written += draw(st.sampled_from(("\n", "\r\n"))) if not written.endswith("\r") else "\r\n\n"
        if event := "\n".join(data):
            expected.append(event.encode())
    return written.encode(), expected


@given(stream=streams(), data=st.data())
def test_events_come_out_whole_wherever_the_bytes_are_cut(
    stream: tuple[bytes, list[bytes]], data: st.DataObject
) -> None:
    written, expected = stream
    assert list(sse_frames([written] if written else [])) == expected
    assert list(sse_frames(written[at : at + 1] for at in range(len(written)))) == expected
    cuts = sorted(data.draw(st.lists(st.integers(0, len(written)), max_size=6)))
    pieces = [written[start:end] for start, end in zip([0, *cuts], [*cuts, len(written)], strict=True)]
    assert list(sse_frames(piece for piece in pieces if piece)) == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data:  a\n\n", [b" a"]),
        (b"data: a\n\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\n\ndata: \n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\ndata: b\n\ndata: c\n\n", [b"a\nb", b"c"]),
        (b"data: a\n\nevent: x\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\r\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\ndata\ndata: b\n\n", [b"a\n\nb"]),
        (b"data\n\ndata:\n\n: ping\n\n\n\n", []),
        (b"event: error\ndata: a\n\n", [b"a"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"data: no blank line\n", [b"no blank line"]),
        (b"data: no line end", [b"no line end"]),
        (b"data: [DONE]\n\nevent: x", [b"[DONE]"]),
        ("data: \u2028\u0085\x0b\x0c\x1c\n\n".encode(), "\u2028\u0085\x0b\x0c\x1c".encode()),
    ],
)
def test_what_counts_as_an_event(written: bytes, expected: list[bytes] | bytes) -> None:
    assert list(sse_frames([written])) == (expected if isinstance(expected, list) else [expected])


def test_silence_passes_through_and_breaks_nothing_up() -> None:
    assert list(sse_frames([b"", b"data: a", b"", b"b\n", b"\n", b""])) == [b"", b"", b"ab", b""]
    # A line that has begun goes on, whatever its rest looks like.
    assert list(sse_frames([b"data: a", b"data: b\n\n", b"data: c\n\n"])) == [b"adata: b", b"c"]
    assert list(sse_frames([b"data: a\n", b"data: b\n\n"])) == [b"a\nb"]


def test_an_event_beyond_the_bound_is_refused_and_many_events_are_not() -> None:
    event = b"data: " + b"x" * 100 + b"\n\n"
    assert len(list(sse_frames([event] * 50, max_bytes=200))) == 50
    with pytest.raises(EventTooLong, match="longer than 200 bytes"):
        list(sse_frames([b"data: " + b"x" * 50] * 5, max_bytes=200))
    with pytest.raises(EventTooLong):
        list(sse_frames([b"data: x\n"] * 50, max_bytes=200))


def test_a_line_of_60_megabytes_costs_linear_time() -> None:
    data = b"x" * 60_000_000
    line = b"data: " + data + b"\n\n"
    pieces = [line[at : at + 16_384] for at in range(0, len(line), 16_384)]
    begun = time.perf_counter()
    assert list(sse_frames(pieces)) == [data]
    # Some 0.3 s; joining the whole again with every piece would copy 100 gigabytes.
    assert time.perf_counter() - begun < 10

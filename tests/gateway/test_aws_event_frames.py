"""AWS's binary streams: read as AWS's own SDK reads them, wherever they are cut; broken ones do not pass."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import msgspec
import pytest
from botocore.eventstream import EventStreamBuffer
from hypothesis import given
from hypothesis import strategies as st

from apps.gateway.framing import BrokenFrames, aws_event_frames
from tests.support.aws_event_frames import frame, header

texts = st.text(max_size=8)
payloads = st.dictionaries(texts, texts | st.integers(-(2**40), 2**40), max_size=3)
kinds = st.sampled_from(["messageStart", "contentBlockDelta", "metadata", 'odd "name"', ""])
# Headers of every type there is, to be passed over.
others = st.sampled_from(
    [
        header(0, b""),
        header(1, b""),
        header(2, b"\x07"),
        header(3, b"\x00\x07"),
        header(4, b"\x00\x00\x00\x07"),
        header(5, bytes(8)),
        header(6, b"\x00\x03abc"),
        header(8, bytes(8)),
        header(9, bytes(16)),
    ]
)


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


@given(
    told=st.lists(st.tuples(kinds, payloads, others), min_size=1, max_size=4),
    exceptions=st.booleans(),
    size=st.integers(1, 200),
)
def test_frames_are_those_that_awss_own_sdk_reads(
    told: list[tuple[str, dict[str, Any], bytes]], exceptions: bool, size: int
) -> None:
    data = b"".join(
        frame(kind, msgspec.json.encode(payload), exception=exceptions, more=more) for kind, payload, more in told
    )
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    name = ":exception-type" if exceptions else ":event-type"
    theirs = [{event.headers[name]: json.loads(event.payload)} for event in buffer]
    ours = [json.loads(one) for one in aws_event_frames(pieces(data, size))]
    assert ours == ([{"exception": one} for one in theirs] if exceptions else theirs)


def test_silence_is_passed_on_and_a_frame_that_is_cut_says_nothing() -> None:
    data = frame("a", b"{}")
    assert list(aws_event_frames([data[:7], b"", data[7:], b"", data[:-1]])) == [b"", b'{"a":{}}', b""]


def test_an_error_of_the_stream_itself_is_told_like_an_exception() -> None:
    headers = b"".join(
        bytes([len(name)]) + name + b"\x07" + len(text).to_bytes(2) + text
        for name, text in ((b":message-type", b"error"), (b":error-code", b"Boom"), (b":error-message", b'so "sad"'))
    )
    head = struct.pack(">II", 16 + len(headers), len(headers))
    head += struct.pack(">I", crc32(head))
    whole = head + headers
    whole += struct.pack(">I", crc32(whole))
    assert [json.loads(one) for one in aws_event_frames([whole])] == [{"exception": {"Boom": {"message": 'so "sad"'}}}]


def test_a_frame_without_a_payload_says_null() -> None:
    assert list(aws_event_frames([frame("a", b"")])) == [b'{"a":null}']


@given(at=st.integers(0, 200), bit=st.integers(0, 7))
def test_no_bit_can_be_wrong(at: int, bit: int) -> None:
    data = bytearray(frame("contentBlockDelta", b'{"contentBlockIndex":0,"delta":{"text":"Hello"}}'))
    data[at % len(data)] ^= 1 << bit
    with pytest.raises(BrokenFrames):
        list(aws_event_frames([bytes(data)]))


@pytest.mark.parametrize(
    ("size", "headers"),
    [(2**31, 0), (15, 0), (40, 39), (33, 0)],
    ids=["too long", "shorter than its ends", "shorter than its headers", "over the limit"],
)
def test_a_frame_of_an_impossible_size_is_refused_at_once(size: int, headers: int) -> None:
    head = struct.pack(">II", size, headers)
    with pytest.raises(BrokenFrames):
        list(aws_event_frames([head + struct.pack(">I", crc32(head))], max_bytes=32))


@pytest.mark.parametrize("headers", [b"\x05ab", b"\x01a\x63", b"\x01a\x07\x00\xffx", b"\x01\xff\x00", b"\x01a\x04\x00"])
def test_headers_that_cannot_be_read_are_refused(headers: bytes) -> None:
    with pytest.raises(BrokenFrames):
        list(aws_event_frames([frame("a", b"{}", more=headers)]))


def test_what_is_no_stream_is_refused() -> None:
    with pytest.raises(BrokenFrames):
        list(aws_event_frames([b'{"message":"not a stream at all"}']))

"""Providers' framings: the same frames wherever the bytes are cut, never more than came, `BrokenFrames` at most."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from apps.gateway.framing import BrokenFrames, aws_event_frames, sse_frames
from tests.fuzz import seeds
from tests.fuzz.target import Target, pieces_of

Reader = Callable[[Iterable[bytes]], Iterator[bytes]]


def _read(reader: Reader, pieces: Iterable[bytes]) -> tuple[list[bytes], bool]:
    """Return the frames, and whether the bytes were no frames in the end."""
    found: list[bytes] = []
    try:
        found.extend(reader(pieces))
    except BrokenFrames:
        return found, True
    return found, False


def _same_everywhere(reader: Reader, data: bytes) -> list[bytes]:
    whole, broken = _read(reader, [data] if data else [])
    for salt in (0, 1):
        assert _read(reader, pieces_of(data, salt)) == (whole, broken)
    return whole


def run_sse(data: bytes) -> None:
    """Read server-sent events, also with a small bound on one."""
    events = _same_everywhere(sse_frames, data)
    assert sum(map(len, events)) <= len(data)
    found, _ = _read(lambda pieces: sse_frames(pieces, 100), pieces_of(data))
    assert all(len(event) <= 100 + 97 for event in found)


def run_event_stream(data: bytes) -> None:
    """Read a binary event stream."""
    _same_everywhere(aws_event_frames, data)


TARGETS = [
    Target("sse", run_sse, lambda: seeds.streams("openai") + seeds.streams("anthropic"), shape="sse"),
    Target("sse_bytes", run_sse, lambda: [*seeds.streams("google"), b"\xef\xbb\xbfdata: a\r\n\r\ndata\rdata:b\r\r"]),
    Target("aws_eventstream", run_event_stream, seeds.event_streams),
]

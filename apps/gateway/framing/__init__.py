"""Framings: bytes of a stream to frames, whatever the frames mean. A framing is a module here, found by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module

from apps.gateway.failures import UpstreamFailure

# Chunks of bytes, the most bytes that a frame may have, and who looks at each of LONG bytes and more.
Frames = Callable[[Iterable[bytes], int, Callable[[bytes], object]], Iterator[bytes]]
LONG = 64 * 1024


class BrokenFrames(UpstreamFailure):
    """Bytes that are no frames, or a frame that is too large: the connection fails."""

    def __init__(self, message: str) -> None:
        super().__init__("network", message)


@cache
def frames_of(name: str) -> Frames:
    """Return the reader of a framing: chunks of bytes as they arrive to whole frames; an empty chunk is silence."""
    frames: Frames = import_module(f"{__name__}.{name}").frames
    return frames

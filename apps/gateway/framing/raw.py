"""Raw framing: bytes as they arrive are the frames, for audio, or for one value as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator


def frames(chunks: Iterable[bytes], max_bytes: int = 0, look: Callable[[bytes], object] = len) -> Iterator[bytes]:
    """Yield the chunks as they are. An empty chunk means silence; none is longer than a single read."""
    yield from chunks

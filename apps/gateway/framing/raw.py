"""Raw framing: bytes as they arrive are the frames, of answers that are sound, or one value as a whole.

Must never know what the bytes mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator


def frames(chunks: Iterable[bytes], max_bytes: int = 0, look: Callable[[bytes], object] = len) -> Iterator[bytes]:
    """Yield the chunks as they are. An empty chunk means silence; none is longer than what is read at a time."""
    yield from chunks

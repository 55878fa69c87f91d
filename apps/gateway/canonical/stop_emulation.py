"""Stop emulation: the stop sequences of a request whose provider takes none."""

from __future__ import annotations

import msgspec


class StopEmulation(msgspec.Struct, frozen=True):
    """The stop sequences before which an answer is cut here. A call of a stream is ended with the last choice's cut."""

    sequences: tuple[str, ...]
    streamed: bool = False
    choices: int = 1

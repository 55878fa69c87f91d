"""Google speech as a WAV file: its samples behind a head, which is all that there is to such a file.

How long the audio will be is not known when it begins: the head says the most, as OpenAI's does in a stream.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from apps.gateway.canonical.events import AudioBytes, Event, Started
from apps.gateway.dialects.media.speech.provider.google import PROVIDER as GOOGLE

_RATE: Final = 24_000
_BYTES: Final = 2
_UNKNOWN: Final = 0xFFFF_FFFF
WAV_HEAD: Final = (
    struct.pack("<4sI4s", b"RIFF", _UNKNOWN, b"WAVE")
    + struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, _RATE, _RATE * _BYTES, _BYTES, 8 * _BYTES)
    + struct.pack("<4sI", b"data", _UNKNOWN)
)


def read_events(frames: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of the answer, a head ahead of its audio."""
    for event in GOOGLE.read_events(frames):
        yield event
        if type(event) is Started:
            yield AudioBytes(data=WAV_HEAD)


PROVIDER: Final = replace(GOOGLE, name="google_wav", read_events=read_events)

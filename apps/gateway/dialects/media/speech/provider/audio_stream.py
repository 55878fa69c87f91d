"""Audio on its way: the events of an answer that is the bytes of a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import Event, Finished, SoundDelta, Started, Waiting
from apps.gateway.dialects.chat.openai.shared.failures import failed, find_failure
from apps.gateway.dialects.media.speech.provider.capabilities import (
    SpeechCapabilities,
    capabilities_of,
    instructions_of,
)
from apps.gateway.dialects.reading.answer_errors import read_answer, unreadable_answer
from apps.kernel.errors import InvalidRequest

# Bytes of an answer that begins like a text: no audio format does, but samples without a head might.
_MAX_ERROR_BYTES: Final = 16 * 1024
_TEXTS: Final = (b'{"', b"{\n", b"{ ", b"data:", b"<!DOCTYPE", b"<html")


def read_audio(frames: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of an answer whose frames are pieces of a file; one without any audio ends with `Failed`."""
    pieces = iter(frames)
    held = b""
    for piece in pieces:
        if not piece:
            yield Waiting()
            continue
        held += piece
        if not held.startswith(_TEXTS) or len(held) > _MAX_ERROR_BYTES:
            break
    else:
        yield _failure_of(held)
        return
    yield Started()
    yield SoundDelta(data=held)
    for piece in pieces:
        yield SoundDelta(data=piece) if piece else Waiting()
    yield Finished(reason="stop")


def never_whole(body: bytes) -> Iterator[Event]:
    """Yield the end of an answer that was read whole: none is ever asked for."""
    yield unreadable_answer("The provider's audio was to be streamed")


def options_of(chat: Chat, target: Target) -> SpeechCapabilities:
    """Return what a target can do; note the instructions where it takes none."""
    capabilities = capabilities_of(target.facts)
    if capabilities is None:
        raise InvalidRequest("This model does not speak", code="unsupported_feature", param="model")
    if instructions_of(chat) is not None and "instructions" not in capabilities.takes:
        target.note_dropped("instructions", "this model takes no instructions on how to speak")
    return capabilities


def _failure_of(body: bytes) -> Event:
    if not body:
        return unreadable_answer("The provider sent no audio")
    try:
        answer = read_answer(body)
    except ValueError:
        return unreadable_answer("The provider sent no audio")
    failure = find_failure(answer)
    return unreadable_answer("The provider sent no audio") if failure is None else failed(answer, failure)

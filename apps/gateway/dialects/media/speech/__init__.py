"""Speech formats: the facts that a model may state, and audio read from a stream.

A request for speech is a chat whose `speech` says how its text is to be read. A format is a provider side for such
chats, found by the name that the data files state under `speech`. Audio is only ever streamed.
docs/adding-a-provider.md explains each fact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from apps.gateway.canonical.chat import Chat, Message, Target, Text
from apps.gateway.canonical.events import AudioBytes, Event, Finished, Started, Waiting
from apps.gateway.canonical.task_options import AudioFormat, Speech
from apps.gateway.dialects import fact, facts_reader
from apps.gateway.dialects.chat.openai.wire import failed, find_failure
from apps.gateway.dialects.reading.answers import read_answer, unreadable_answer
from apps.kernel.errors import InvalidRequest

SpeechOption = Literal["instructions", "speed", "custom_voice"]


class SpeechCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a data file may state under `speech`. A model supports only the stated options."""

    dialect: Annotated[
        Literal["openai", "openai_events", "elevenlabs", "deepgram", "google"],
        fact(
            "the speech dialect: `openai`, which answers with bytes, `openai_events`, which answers with events and "
            "counts tokens, `elevenlabs`, `deepgram`, `google` (`streamGenerateContent`), which has `pcm` and `wav`"
        ),
    ]
    most_characters: Annotated[int, fact("characters of one text", ge=1, le=100_000)] = 4096
    formats: Annotated[
        frozenset[AudioFormat], fact("audio formats, in OpenAI's words: `mp3`, `opus`, `aac`, `flac`, `wav`, `pcm`")
    ] = frozenset({"mp3"})
    takes: Annotated[
        frozenset[SpeechOption],
        fact("`speed`; `custom_voice`: a voice as `{id}`; a hint that is dropped otherwise: `instructions`"),
    ] = frozenset()
    api_version: Annotated[
        str,
        fact(
            "what the address names as `api-version` (`openai`; Azure wants it)",
            default="none",
            pattern=r"^[a-z0-9-]{0,40}$",
        ),
    ] = ""


def capabilities_of(facts: Mapping[str, Any]) -> SpeechCapabilities | None:
    """Return what an offer's facts say of speech, None where they say nothing: it does not speak."""
    return _read(facts)


def speech_of(chat: Chat) -> Speech:
    """Return what a chat says of its speech."""
    return chat.speech or Speech(voice="")


def text_of(chat: Chat) -> str:
    """Return the text to read aloud."""
    return _text_of(chat.messages[0])


def instructions_of(chat: Chat) -> str | None:
    """Return how the text is to be read, in the client's words; None where it says nothing."""
    return _text_of(chat.messages[1]) if len(chat.messages) > 1 else None


def _text_of(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Text))


_read = facts_reader("speech", SpeechCapabilities)


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
    yield AudioBytes(data=held)
    for piece in pieces:
        yield AudioBytes(data=piece) if piece else Waiting()
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

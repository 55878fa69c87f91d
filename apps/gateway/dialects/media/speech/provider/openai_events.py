"""OpenAI speech as events, provider side: audio in base64, and the tokens that it is paid by at its end.

Source: OpenAI's API reference (`speech.audio.delta`, `speech.audio.done`), read 2026-11-23. Used whatever format the
client takes, since no other answer has the tokens.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Iterator
from typing import Any, Final

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import AudioBytes, Event, Failed, Finished, Started, UsageReported, Waiting
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.chat.openai.wire import encode, failed, find_failure, read_failure
from apps.gateway.dialects.media.speech import never_whole
from apps.gateway.dialects.media.speech.provider.openai import fields_of, path
from apps.gateway.dialects.reading.answer_errors import drain_frames, read_answer, truncated_answer, unreadable_answer
from apps.gateway.dialects.reading.usage_numbers import read_count
from apps.kernel.usage import Usage


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    return encode({**fields_of(chat, target), "stream_format": "sse"})


def read_events(frames: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of the answer; one that breaks off, or holds an error, ends with `Failed`."""
    pieces = iter(frames)
    begun = False
    for frame in pieces:
        if not frame:
            yield Waiting()
            continue
        try:
            event = read_answer(frame)
        except ValueError:
            yield unreadable_answer("The provider sent invalid JSON")
            return
        kind = event.get("type") if isinstance(event, dict) else None
        if kind == "speech.audio.delta":
            audio = _audio_of(event)
            if audio is None:
                yield unreadable_answer("The provider sent audio that is not base64")
                return
            if not begun:
                begun = True
                yield Started()
            if audio:
                yield AudioBytes(data=audio)
        elif kind == "speech.audio.done":
            if not begun:
                yield unreadable_answer("The provider sent no audio")
                return
            if (usage := _usage_of(event.get("usage"))) is not None:
                yield UsageReported(usage=usage)
            yield Finished(reason="stop")
            drain_frames(pieces)
            return
        elif failure := _failure_of(event):
            yield failure
            return
    yield truncated_answer()


def _audio_of(event: dict[str, Any]) -> bytes | None:
    written = event.get("audio")
    if not isinstance(written, str):
        return None
    try:
        return b64decode(written, validate=True)
    except ValueError:
        return None


def _failure_of(event: Any) -> Failed | None:
    failure = find_failure(event)
    return None if failure is None else failed(event, failure)


def _usage_of(reported: Any) -> Usage | None:
    """Return the counts: input is text, output is audio."""
    if not isinstance(reported, dict):
        return None
    read, written = (read_count(reported.get(name)) for name in ("input_tokens", "output_tokens"))
    return Usage(input=read, audio_output=written) if written else None


read_reply = never_whole


PROVIDER: Final = ProviderDialect(
    name="openai_events",
    path=path,
    write_request=write_request,
    read_reply=read_reply,
    read_events=read_events,
    read_failure=read_failure,
)

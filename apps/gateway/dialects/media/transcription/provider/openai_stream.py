"""OpenAI transcription as a stream, provider side: the words as they are written down, and the tokens at their end.

Source: OpenAI's API reference and `openai` 3.52 (`types/audio/transcription_stream_event.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import (
    Event,
    Finished,
    Logprobs,
    Started,
    TextDelta,
    TranscriptTimed,
    UsageReported,
    Waiting,
)
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.chat.openai.wire import read_failure
from apps.gateway.dialects.media.multipart_form import MULTIPART, Field, boundary_of, write_form
from apps.gateway.dialects.media.transcription import options_of
from apps.gateway.dialects.media.transcription.provider.openai import (
    failure_of,
    fields_of,
    is_segment,
    path,
    read_reply,
    usage_of,
)
from apps.gateway.dialects.reading.answer_errors import drain_frames, read_answer, truncated_answer, unreadable_answer


def headers(chat: Chat, target: Target) -> dict[str, str]:
    """Return the content type of the form, which names its boundary."""
    return {"Content-Type": f"{MULTIPART}; boundary={boundary_of(_streamed(chat, target))}"}


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    options_of(chat, target)
    fields = _streamed(chat, target)
    return write_form(fields, boundary_of(fields))


def read_events(frames: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of the answer; one that breaks off, or holds an error, ends with `Failed`."""
    pieces = iter(frames)
    begun = has_text = False
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
        if not begun and kind in _KINDS:
            begun = True
            yield Started()
        if kind == "transcript.text.delta" and isinstance(event.get("delta"), str):
            has_text = True
            yield from _logprobs_of(event)
            yield TextDelta(text=event["delta"])
        elif kind == "transcript.text.segment" and is_segment(event):
            yield TranscriptTimed(segments=[event])
        elif kind == "transcript.text.done":
            if not has_text and isinstance(text := event.get("text"), str) and text:
                yield TextDelta(text=text)
            if (usage := usage_of(event)) is not None:
                yield UsageReported(usage=usage)
            yield Finished(reason="stop")
            drain_frames(pieces)
            return
        elif failure := failure_of(event):
            yield failure
            return
    yield truncated_answer()


_KINDS: Final = frozenset({"transcript.text.delta", "transcript.text.segment", "transcript.text.done"})


def _streamed(chat: Chat, target: Target) -> list[Field]:
    return [("stream", "true"), *fields_of(chat, target)]


def _logprobs_of(event: dict[str, Any]) -> Iterator[Event]:
    logprobs = event.get("logprobs")
    if isinstance(logprobs, list) and logprobs:
        yield Logprobs(logprobs={"content": logprobs})


PROVIDER: Final = ProviderDialect(
    name="openai_stream",
    path=path,
    write_request=write_request,
    read_reply=read_reply,
    read_events=read_events,
    read_failure=read_failure,
    headers=headers,
)

"""OpenAI transcription, client side: writes transcripts in each of the formats that a client may ask for.

Captions are made of segments. Where guardrails masked something, the times of words are gone, and there is one caption
for all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from apps.gateway.canonical.audio import TranscriptFormat, Transcription
from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.events import (
    Choice,
    Event,
    Failed,
    Finished,
    Logprobs,
    Reply,
    Summary,
    TextDelta,
    TranscriptTimed,
    Waiting,
)
from apps.gateway.dialects.chat.openai.shared.failures import write_error, write_error_object
from apps.gateway.dialects.chat.openai.shared.wire import encode
from apps.gateway.dialects.reading.fields import Record
from apps.kernel.errors import ApiError, InvalidRequest
from apps.kernel.usage import Usage

__all__ = ["CONTENT_TYPES", "write_error", "write_events", "write_reply"]

_JSON: Final = "application/json"
CONTENT_TYPES: Final[dict[TranscriptFormat, str]] = {
    "json": _JSON,
    "verbose_json": _JSON,
    "diarized_json": _JSON,
    "text": "text/plain; charset=utf-8",
    "srt": "application/x-subrip; charset=utf-8",
    "vtt": "text/vtt; charset=utf-8",
}
_PING: Final = b": waiting\n\n"


def write_reply(reply: Reply, summary: Summary, chat: Chat) -> bytes:
    """Return the whole transcript in the form that was asked for. Raises InvalidRequest where a guardrail blocked it:
    no format has words for that."""
    choice = reply.choices[0] if reply.choices else Choice()
    if choice.finish == "content_filter":
        raise _blocked()
    asked, text, timing = _asked(chat), choice.text or "", choice.timing or TranscriptTimed()
    match asked.response_format:
        case "text":
            return f"{text}\n".encode()
        case "srt":
            return _captions(text, timing, ",").encode()
        case "vtt":
            return f"WEBVTT\n\n{_captions(text, timing, '.', numbered=False)}".encode()
    wire: Record = {}
    if asked.response_format != "json":
        wire = {"task": "translate" if asked.translates else "transcribe", "duration": timing.duration or 0}
    wire["text"] = text
    if asked.response_format == "diarized_json":
        wire["segments"] = _diarized(timing)
    elif asked.response_format == "verbose_json":
        wire["language"] = timing.language or asked.language or ""
        # Segments are included unless only words are requested.
        wire |= {"segments": timing.segments} if asked.segments or not asked.words else {}
        wire |= {"words": timing.words} if asked.words else {}
    if asked.logprobs and choice.logprobs is not None:
        wire["logprobs"] = choice.logprobs.get("content") or []
    return encode({**wire, "usage": _usage(summary.usage), "metadata": summary.metadata})


def write_events(events: Iterable[Event], chat: Chat) -> Iterator[bytes]:
    """Yield a streamed transcript."""
    asked = _asked(chat)
    said: list[str] = []
    logprobs: list[Any] = []
    blocked = False
    for event in events:
        match event:
            case TextDelta() if event.text:
                said.append(event.text)
                yield _event({"type": "transcript.text.delta", "delta": event.text})
            case TranscriptTimed() if asked.needs_speakers:
                for segment in _diarized(event):
                    yield _event(segment)
            case Logprobs() if asked.logprobs:
                logprobs += event.logprobs.get("content") or []
            case Finished():
                blocked = event.reason == "content_filter"
            case Waiting():
                yield _PING
            case Failed():
                yield _failed(event.error)
            case Summary() if blocked:
                yield _failed(_blocked())
            case Summary():
                extra = {"logprobs": logprobs} if logprobs else {}
                usage = _usage(event.usage)
                yield _event({"type": "transcript.text.done", "text": "".join(said), **extra, "usage": usage})


def _asked(chat: Chat) -> Transcription:
    if chat.transcription is None:
        raise ValueError("not a request for a transcript")
    return chat.transcription


def _blocked() -> InvalidRequest:
    return InvalidRequest(
        "Blocked by a guardrail: the recording's content is not allowed", code="guardrail_blocked", param="file"
    )


def _failed(error: ApiError) -> bytes:
    return _event({"type": "error", "error": write_error_object(error)})


def _event(wire: Record) -> bytes:
    return b"data: %b\n\n" % encode(wire)


def _diarized(timing: TranscriptTimed) -> list[Record]:
    return [
        {
            "type": "transcript.text.segment",
            "id": str(segment.get("id", number)),
            "start": segment["start"],
            "end": segment["end"],
            "speaker": str(segment.get("speaker", "A")),
            "text": segment["text"],
        }
        for number, segment in enumerate(timing.segments)
    ]


def _captions(text: str, timing: TranscriptTimed, mark: str, *, numbered: bool = True) -> str:
    """Return captions; `mark` stands before the milliseconds."""
    segments = timing.segments or ([{"start": 0.0, "end": timing.duration or 0.0, "text": text}] if text else [])
    captions = []
    for number, segment in enumerate(segments, 1):
        # A blank line would end the caption, and an arrow begin another.
        words = " ".join(str(segment["text"]).split()).replace("-->", "->")
        head = f"{number}\n" if numbered else ""
        captions.append(f"{head}{_time(segment['start'], mark)} --> {_time(segment['end'], mark)}\n{words}\n")
    return "\n".join(captions)


def _time(seconds: float, mark: str) -> str:
    whole, milliseconds = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{mark}{milliseconds:03}"


def _usage(usage: Usage) -> Record:
    if usage.audio_milliseconds and not usage.total_tokens:
        return {"type": "duration", "seconds": usage.audio_milliseconds / 1000}
    return {
        "type": "tokens",
        "input_tokens": usage.prompt_tokens,
        "input_token_details": {
            "text_tokens": usage.prompt_tokens - usage.audio_input,
            "audio_tokens": usage.audio_input,
        },
        "output_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }

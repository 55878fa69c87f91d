"""OpenAI speech, client side: reads requests, writes audio as bytes or as events.

Source: OpenAI's API reference, and `openai` 3.52 (`types/audio/speech_create_params.py`).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from typing import Any, Final, get_args

from apps.gateway.canonical.chat import Chat, DroppedField, Message, Text
from apps.gateway.canonical.events import AudioBytes, Event, Failed, Summary, Waiting
from apps.gateway.canonical.task_options import AudioFormat, Speech
from apps.gateway.dialects.chat.openai.wire import encode, write_error, write_error_object
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import Malformed, Reader, Record, bounded_name, filled_string, one_of
from apps.gateway.dialects.reading.router_fields import take_router_fields

__all__ = ["CONTENT_TYPES", "read_request", "write_bytes", "write_error", "write_events"]

# Opus comes in an Ogg container; `pcm` are samples of 16 bits, little-endian, without a head.
CONTENT_TYPES: Final[dict[AudioFormat, str]] = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}
MAX_CHARACTERS: Final = 100_000
_MAX_VOICE_LENGTH = 200
_PING: Final = b": waiting\n\n"


class ProviderBrokeOff(ConnectionError):
    """Audio has no words for a failure: the connection ends before the answer does."""


def read_request(body: bytes) -> Chat:
    """Return the request for speech. Raises InvalidRequest naming the field."""
    return fields.read_body(body, frozenset(), _read)


def write_bytes(events: Iterable[Event]) -> Iterator[bytes]:
    """Yield the audio as it comes. Raises ProviderBrokeOff where it does not come to its end."""
    for event in events:
        if type(event) is AudioBytes:
            yield event.data
        elif type(event) is Failed:
            raise ProviderBrokeOff(event.error.message)


def write_events(events: Iterable[Event], chat: Chat) -> Iterator[bytes]:
    """Yield the audio as server-sent events."""
    for event in events:
        match event:
            case AudioBytes():
                yield _event({"type": "speech.audio.delta", "audio": b64encode(event.data).decode()})
            case Waiting():
                yield _PING
            case Failed():
                yield _event({"type": "error", "error": write_error_object(event.error)})
            case Summary():
                usage = event.usage
                counts = {
                    "input_tokens": usage.prompt_tokens,
                    "output_tokens": usage.completion_tokens,
                    "total_tokens": usage.total_tokens,
                }
                yield _event({"type": "speech.audio.done", "usage": counts})


def _event(wire: Record) -> bytes:
    return b"data: %b\n\n" % encode(wire)


def _read(wire: Record) -> Chat:
    known, unknown = fields.read_known(wire, _READERS)
    chosen: dict[str, Any] = {"model": known["model"]} if "model" in known else {}
    take_router_fields(unknown, chosen)
    for name in ("model", "input", "voice"):
        if name not in {**chosen, **known}:
            raise Malformed("Required", name)
    messages = [Message(role="user", parts=[Text(text=known["input"])])]
    if known.get("instructions"):
        messages.append(Message(role="user", parts=[Text(text=known["instructions"])]))
    # Not sent on: an unknown field could change the cost of speech.
    dropped = [DroppedField(name[: fields.MAX_QUOTED_NAME], "speech has no such option") for name in unknown]
    dropped_fields = [*chosen.pop("dropped_fields", ()), *dropped]
    voice, is_custom = known["voice"]
    return Chat(
        messages=messages,
        stream=True,
        task="speech",
        speech=Speech(
            voice=voice,
            is_custom_voice=is_custom,
            response_format=known.get("response_format") or "mp3",
            speed=known.get("speed"),
            events=known.get("stream_format") == "sse",
        ),
        dropped_fields=dropped_fields or None,
        **chosen,
    )


def _input(value: Any) -> str:
    if not filled_string(value).strip():
        raise Malformed("must not be blank")
    if len(value) > MAX_CHARACTERS:
        raise Malformed(f"must be at most {MAX_CHARACTERS} characters long")
    return str(value)


def _instructions(value: Any) -> str:
    return _input(value) if fields.string(value) else ""


def _voice(value: Any) -> tuple[str, bool]:
    """Read a voice: its name, or the id of one of the client's own."""
    if isinstance(value, dict):
        return fields.required(value, "id", _voice_name), True
    return _voice_name(value), False


def _voice_name(value: Any) -> str:
    if len(filled_string(value)) > _MAX_VOICE_LENGTH or not value.isprintable():
        raise Malformed(f"must be at most {_MAX_VOICE_LENGTH} printable characters long")
    return str(value)


_READERS: Final[dict[str, Reader[Any]]] = {
    "model": bounded_name,
    "input": _input,
    "voice": _voice,
    "instructions": _instructions,
    "response_format": one_of(*get_args(AudioFormat)),
    "speed": fields.number(0.25, 4.0),
    "stream_format": one_of("audio", "sse"),
}

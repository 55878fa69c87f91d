"""OpenAI transcription, client side: reads forms with a recording, and writes transcripts and captions.

Source: OpenAI's API reference, and `openai` 3.52 (`types/audio/transcription_create_params.py`). A file's own head is
believed within what its size allows: no codec for speech needs less than `MIN_BYTES` a second, and none takes more than
`MAX_BYTES`. Captions are made of segments. Where guardrails masked something, the times of words are gone, and there is
one caption for all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from io import BytesIO
from typing import Any, Final, get_args

import filetype
import msgspec
from tinytag import TinyTag

from apps.gateway.canonical.chat import Chat, DroppedField, Message, Text
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
from apps.gateway.canonical.task_options import Recording, TranscriptFormat, Transcription
from apps.gateway.dialects.chat.openai.wire import encode, write_error, write_error_object
from apps.gateway.dialects.media import FormField
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import Malformed, Reader, Record, bounded_name, one_of
from apps.kernel.errors import ApiError, BodyTooLarge, InvalidRequest
from apps.kernel.json_bounds import decode_text_within
from apps.kernel.usage import Usage

MAX_SIZE: Final = 25 * 1024 * 1024
# Bytes a second: of Opus at its narrowest, of eight channels of 32 bits at 96 kHz, and of a usual recording.
MIN_BYTES, MAX_BYTES, _USUAL_BYTES = 750, 3_072_000, 4_000
# Reads in which a head tells the length: files of 25 MB take some ten thousand. One that is made to take more would
# keep a processor busy.
_MAX_READS: Final = 50_000
_HEAD: Final = 8_192
_MEDIA_TYPES: Final = {
    "flac": "audio/flac",
    "mp3": "audio/mpeg",
    "mpeg": "audio/mpeg",
    "mpga": "audio/mpeg",
    "mp4": "audio/mp4",
    "m4a": "audio/mp4",
    "ogg": "audio/ogg",
    "oga": "audio/ogg",
    "opus": "audio/ogg",
    "wav": "audio/wav",
    "webm": "audio/webm",
    "aac": "audio/aac",
}
_EXTENSIONS: Final = {
    "audio/mpeg": "mp3",
    "audio/mp4": "m4a",
    "audio/ogg": "ogg",
    "audio/x-flac": "flac",
    "audio/x-wav": "wav",
    "audio/aac": "aac",
    "video/mp4": "mp4",
    "video/webm": "webm",
    "video/x-matroska": "webm",
}


class _BoundedFile(BytesIO):
    """A file of which so many pieces are read and no more."""

    reads = 0

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes. Raises ValueError once too many pieces were read."""
        self.reads += 1
        if self.reads > _MAX_READS:
            raise ValueError("too many pieces")
        return super().read(size)


def read_recording(filename: str, data: bytes) -> Recording:
    """Return a client's file. Raises Malformed for one that is no audio file, BodyTooLarge."""
    if not data:
        raise Malformed("must not be empty", "file")
    if len(data) > MAX_SIZE:
        raise BodyTooLarge(f"file: must not be larger than {MAX_SIZE} bytes", param="file")
    extension = _extension_of(filename, data)
    usual, most = _length_of(data)
    return Recording(
        extension=extension,
        media_type=_MEDIA_TYPES[extension],
        data=data,
        digest=sha256(data).hexdigest(),
        milliseconds=usual,
        max_milliseconds=most,
    )


def _extension_of(filename: str, data: bytes) -> str:
    """Return the format that the bytes tell, else the one that the name tells."""
    sniffed = filetype.guess_mime(data[:_HEAD])
    named = filename.rpartition(".")[2].lower()
    extension = _EXTENSIONS.get(sniffed or "", named if sniffed is None else "")
    if extension not in _MEDIA_TYPES:
        raise Malformed(f"must be audio, in one of the formats {', '.join(_MEDIA_TYPES)}", "file")
    # `mpga` is what some call MP3: who named a kind of the same format is taken at their word.
    return named if _MEDIA_TYPES.get(named) == _MEDIA_TYPES[extension] else extension


def _length_of(data: bytes) -> tuple[int, int]:
    """Return about how long a file is, and at most, in milliseconds."""
    shortest, longest = len(data) * 1000 // MAX_BYTES, -(-len(data) * 1000 // MIN_BYTES)
    seconds = _stated_length(data)
    if seconds is None:
        return -(-len(data) * 1000 // _USUAL_BYTES), longest
    length = max(min(round(seconds * 1000), longest), shortest, 1)
    return length, length


def _stated_length(data: bytes) -> float | None:
    """Return the seconds that a file's head tells, None where it tells none, or is made to deceive."""
    try:
        seconds = TinyTag.get(file_obj=_BoundedFile(data), tags=False).duration
    except Exception:  # noqa: BLE001 - whatever is in it, a client sent it
        return None
    return seconds if seconds is not None and 0 < seconds < float("inf") else None


_FILE: Final = "file"
_MAX_PROMPT_LENGTH = 100_000
_LANGUAGE: Final = re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8}){0,3}")
_NUMBER: Final = re.compile(r"-?\d{1,9}(\.\d{1,9})?")
_STRATEGY: Final = re.compile(r"chunking_strategy\[(type|prefix_padding_ms|silence_duration_ms|threshold)\]")
# Formats in which an answer can be streamed.
_STREAMED: Final = frozenset({"json", "text", "diarized_json"})
# Fields that a form may repeat.
_LISTS: Final = frozenset({"timestamp_granularities", "include"})


def read_transcription(form: list[FormField]) -> Chat:
    """Return the request for a transcript. Raises InvalidRequest naming the field, BodyTooLarge."""
    return _refusing(form, translates=False)


def read_translation(form: list[FormField]) -> Chat:
    """Return the request for a transcript in English. Raises InvalidRequest naming the field, BodyTooLarge."""
    return _refusing(form, translates=True)


def _refusing(form: list[FormField], *, translates: bool) -> Chat:
    try:
        return _read(form, translates=translates)
    except Malformed as refusal:
        raise refusal.as_error() from None


def _read(form: list[FormField], *, translates: bool) -> Chat:
    readers = _TRANSLATION if translates else _TRANSCRIPTION
    file, stated = _split(form)
    known: dict[str, Any] = {}
    unknown: list[str] = []
    for name, value in stated.items():
        if name in readers:
            known[name] = fields.within(name, readers[name], value)
        else:
            unknown.append(name)
    if file is None:
        raise Malformed("Required", _FILE)
    if "model" not in known:
        raise Malformed("Required", "model")
    form_of_answer: TranscriptFormat = known.get("response_format", "json")
    _check_together(known, form_of_answer)
    granularities = known.get("timestamp_granularities") or []
    prompt = known.get("prompt")
    # Not sent on: an unknown field could change the cost of a transcript.
    dropped = [DroppedField(name[: fields.MAX_QUOTED_NAME], "transcripts have no such option") for name in unknown]
    return Chat(
        model=known["model"],
        messages=[Message(role="user", parts=[Text(text=prompt)] if prompt else [])],
        stream=bool(known.get("stream")),
        temperature=known.get("temperature"),
        task="transcription",
        transcription=Transcription(
            recording=read_recording(file.filename or "", file.data),
            translates=translates,
            language=known.get("language"),
            response_format=form_of_answer,
            words="word" in granularities,
            segments="segment" in granularities,
            logprobs="logprobs" in (known.get("include") or []),
            chunking_strategy=known.get("chunking_strategy"),
        ),
        dropped_fields=dropped or None,
    )


def _split(form: list[FormField]) -> tuple[FormField | None, dict[str, Any]]:
    """Return a form's file, and its other fields by name, those that may come several times as lists."""
    file: FormField | None = None
    stated: dict[str, Any] = {}
    for part in form:
        name = part.name.removesuffix("[]")
        if (part.filename is not None) != (name == _FILE):
            raise Malformed("must be a file" if name == _FILE else "must not be a file", name[: fields.MAX_QUOTED_NAME])
        if name == _FILE:
            if file is not None:
                raise Malformed("must be given once", _FILE)
            file = part
            continue
        value = _text(name, part.data)
        if name in _LISTS:
            stated.setdefault(name, []).append(value)
        elif inner := _STRATEGY.fullmatch(name):
            stated.setdefault("chunking_strategy", {})[inner[1]] = _number(value)
        elif name in stated:
            raise Malformed("must be given once", name[: fields.MAX_QUOTED_NAME])
        elif value:
            stated[name] = value
    return file, stated


def _check_together(known: dict[str, Any], form: str) -> None:
    """Raise Malformed for fields that contradict each other."""
    if known.get("stream") and form not in _STREAMED:
        raise Malformed(f"must be one of {', '.join(sorted(_STREAMED))} where stream is true", "response_format")
    if known.get("timestamp_granularities") and form != "verbose_json":
        raise Malformed("response_format must be verbose_json", "timestamp_granularities")
    if known.get("include") and form != "json":
        raise Malformed("response_format must be json", "include")


def _text(name: str, data: bytes) -> str:
    if len(data) > _MAX_PROMPT_LENGTH * 4:
        raise Malformed("is too long", name[: fields.MAX_QUOTED_NAME])
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Malformed("must be UTF-8", name[: fields.MAX_QUOTED_NAME]) from None


def _number(value: str) -> Any:
    """Return a form's number; an invalid one stays a text, and is refused as one."""
    if not _NUMBER.fullmatch(value):
        return value
    return float(value) if "." in value else int(value)


def _prompt(value: Any) -> str:
    if len(value) > _MAX_PROMPT_LENGTH:
        raise Malformed(f"must be at most {_MAX_PROMPT_LENGTH} characters long")
    return str(value)


def _language(value: Any) -> str:
    if not _LANGUAGE.fullmatch(value):
        raise Malformed("must be a language, such as en")
    return str(value)


def _temperature(value: Any) -> float:
    return fields.number(0, 1)(_number(value))


def _stream(value: Any) -> bool:
    return bool(one_of("true", "false", "1", "0")(value.lower()) in {"true", "1"})


def _chunking_strategy(value: Any) -> str | dict[str, Any]:
    """Read `auto`, or settings of voice detection, as JSON or as fields of their own."""
    if value == "auto":
        return "auto"
    if isinstance(value, str):
        try:
            value = decode_text_within(value, fields.BOUNDS)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise Malformed("must be auto or an object") from None
    wire = fields.record(value)
    fields.required(wire, "type", one_of("server_vad"))
    read = {name: fields.optional(wire, name, reader) for name, reader in _VAD.items()}
    return {"type": "server_vad", **{name: setting for name, setting in read.items() if setting is not None}}


_VAD: Final[dict[str, Reader[Any]]] = {
    "prefix_padding_ms": fields.integer(0, 60_000),
    "silence_duration_ms": fields.integer(0, 60_000),
    "threshold": fields.number(0, 1),
}
_TRANSLATION: Final[dict[str, Reader[Any]]] = {
    "model": bounded_name,
    "prompt": _prompt,
    "response_format": one_of("json", "text", "srt", "verbose_json", "vtt"),
    "temperature": _temperature,
}
_TRANSCRIPTION: Final[dict[str, Reader[Any]]] = _TRANSLATION | {
    "language": _language,
    "response_format": one_of(*get_args(TranscriptFormat)),
    "timestamp_granularities": fields.list_of(one_of("word", "segment"), 2),
    "include": fields.list_of(one_of("logprobs"), 1),
    "stream": _stream,
    "chunking_strategy": _chunking_strategy,
}


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
    texts: list[str] = []
    logprobs: list[Any] = []
    blocked = False
    for event in events:
        match event:
            case TextDelta() if event.text:
                texts.append(event.text)
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
                yield _event({"type": "transcript.text.done", "text": "".join(texts), **extra, "usage": usage})


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

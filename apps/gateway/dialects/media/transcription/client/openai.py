"""OpenAI transcription, client side: reads forms with a recording. Transcripts are written in `write_transcript.py`.

Source: OpenAI's API reference, and `openai` 3.52 (`types/audio/transcription_create_params.py`).
"""

from __future__ import annotations

import re
from typing import Any, Final, get_args

import msgspec

from apps.gateway.canonical.audio import TranscriptFormat, Transcription
from apps.gateway.canonical.chat import Chat, DroppedField, Message, Text
from apps.gateway.dialects.media.multipart_form import FormField
from apps.gateway.dialects.media.transcription.client.recording import read_recording
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import Malformed, Reader, filled_string, one_of

_FILE: Final = "file"
_MAX_NAME_LENGTH, _MAX_PROMPT_LENGTH = 512, 100_000
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
    lost = [DroppedField(name[: fields.MAX_NAME_TOLD], "transcripts have no such option") for name in unknown]
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
        dropped_fields=lost or None,
    )


def _split(form: list[FormField]) -> tuple[FormField | None, dict[str, Any]]:
    """Return a form's file, and its other fields by name, those that may come several times as lists."""
    file: FormField | None = None
    stated: dict[str, Any] = {}
    for part in form:
        name = part.name.removesuffix("[]")
        if (part.filename is not None) != (name == _FILE):
            raise Malformed("must be a file" if name == _FILE else "must not be a file", name[: fields.MAX_NAME_TOLD])
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
            raise Malformed("must be given once", name[: fields.MAX_NAME_TOLD])
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
        raise Malformed("is too long", name[: fields.MAX_NAME_TOLD])
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Malformed("must be UTF-8", name[: fields.MAX_NAME_TOLD]) from None


def _number(value: str) -> Any:
    """Return a form's number; an invalid one stays a text, and is refused as one."""
    if not _NUMBER.fullmatch(value):
        return value
    return float(value) if "." in value else int(value)


def _model(value: Any) -> str:
    if len(filled_string(value)) > _MAX_NAME_LENGTH:
        raise Malformed(f"must be at most {_MAX_NAME_LENGTH} characters long")
    return str(value)


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
            value = msgspec.json.decode(value)
        except msgspec.MsgspecError:
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
    "model": _model,
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

"""OpenAI Responses, client side: reads the parts of a message's content, and what tools answered.

Knows the kinds of parts. Must never know items.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from apps.gateway.canonical.chat import Audio, CacheMark, File, Image, Opaque, Part, Refusal, Text
from apps.gateway.dialects.chat.responses.shared.wire import BREAKPOINT, EXPLICIT, NAME
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import (
    Malformed,
    Record,
    filled_string,
    list_of,
    optional,
    record,
    required,
    string,
)

MAX_PARTS: Final = 10_000
_PLAIN_TEXT: Final = frozenset({"type", "text"})


def read_content(value: Any) -> list[Part]:
    """Read the content of a message: a string, or parts."""
    if isinstance(value, str):
        return [Text(text=value)]
    if isinstance(value, list):
        return _parts(value)
    raise Malformed("must be a string or an array of parts")


def _part(value: Any) -> Part:
    return _read_by_type(record(value))


def _rest(wire: Record, *known: str) -> Record | None:
    # A mark that says more than that it is one stays as it is beside what is understood of it.
    understood = {BREAKPOINT} if wire.get(BREAKPOINT) == EXPLICIT else set()
    return fields.rest_of(wire, frozenset({"type", *known, *understood}))


def _mark(wire: Record) -> CacheMark | None:
    """Read the mark of what to cache. Where it states how long, that is longer than the shortest time of others: theirs
    is the longer of their two."""
    mark = optional(wire, BREAKPOINT, record)
    if mark is None:
        return None
    return CacheMark(ttl=None if fields.within(BREAKPOINT, _lifetime, mark) is None else "1h")


def _lifetime(mark: Record) -> str | None:
    return optional(mark, "ttl", filled_string)


def _text(wire: Record) -> Text:
    text = required(wire, "text", string)
    if wire.keys() == _PLAIN_TEXT:
        return Text(text=text)
    return Text(text=text, cache=_mark(wire), extra=_rest(wire, "text"))


def _output_text(wire: Record) -> Text:
    """Read what a model said: citations come back with it, log probabilities say nothing to anybody."""
    notes = [note for note in optional(wire, "annotations", _records) or () if note]
    extra = {**(_rest(wire, "text", "annotations", "logprobs") or {}), **({"annotations": notes} if notes else {})}
    return Text(text=required(wire, "text", string), extra=extra or None)


def _refusal(wire: Record) -> Refusal:
    return Refusal(text=required(wire, "refusal", string), extra=_rest(wire, "refusal"))


def _image(wire: Record) -> Part:
    if wire.get("image_url") is None and optional(wire, "file_id", filled_string) is not None:
        # Only the provider that keeps the file can find it.
        return Opaque(dialect=NAME, data=wire)
    return Image(
        url=required(wire, "image_url", filled_string),
        detail=optional(wire, "detail", string),
        cache=_mark(wire),
        extra=_rest(wire, "image_url", "detail", "file_id"),
    )


def _audio(wire: Record) -> Audio:
    inner = required(wire, "input_audio", record)
    data, sound_format = fields.within(
        "input_audio", lambda it: [required(it, name, filled_string) for name in ("data", "format")], inner
    )
    return Audio(data=data, format=sound_format, cache=_mark(wire), extra=_rest(wire, "input_audio"))


def _file(wire: Record) -> File:
    data, url, file_id, filename = (
        optional(wire, name, string) for name in ("file_data", "file_url", "file_id", "filename")
    )
    if not (data or url or file_id):
        raise Malformed("Required", "file_data")
    return File(
        data=data,
        url=url,
        file_id=file_id,
        filename=filename,
        cache=_mark(wire),
        extra=_rest(wire, "file_data", "file_url", "file_id", "filename"),
    )


_PARTS: dict[str, Callable[[Record], Part]] = {
    "input_text": _text,
    "output_text": _output_text,
    "text": _text,
    "summary_text": _text,
    "refusal": _refusal,
    "input_image": _image,
    "input_audio": _audio,
    "input_file": _file,
}
_read_by_type = fields.pick(_PARTS, "type")
_parts = list_of(_part, MAX_PARTS)
_records = list_of(record, MAX_PARTS)

"""Google generateContent, client side: reads `generationConfig`; what has no canonical field is kept beside.

Knows the fields and their ranges. Must never know which model takes which.
"""

from __future__ import annotations

from typing import Any

from apps.gateway.canonical.chat import ReasoningRequest, ResponseFormat
from apps.gateway.dialects.chat.google.client.read_schema import json_schema_of, ordered
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import (
    Malformed,
    Reader,
    Record,
    boolean,
    integer,
    list_of,
    number,
    one_of,
    optional,
    record,
    string,
)

MAX_STOPS, MAX_LISTED = 1_000, 100
# No model writes a billion tokens, and a count beyond does not fit where it is kept.
MOST_TOKENS = 1_000_000_000
JSON, PLAIN = "application/json", "text/plain"
_LEVELS = ("THINKING_LEVEL_UNSPECIFIED", "MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH")
_PICTURE_OPTIONS = {"aspectRatio": "aspect_ratio", "imageSize": "image_size"}
_THINKING_FIELDS = frozenset({"includeThoughts", "thinkingBudget", "thinkingLevel"})
_FORM_FIELDS = ("responseMimeType", "responseSchema", "responseJsonSchema")


def read_config(value: Any) -> tuple[Record, Record | None]:
    """Return the fields of a canonical chat that a `generationConfig` says, and the fields that it has no word for."""
    wire = record(value)
    known: Record = {}
    rest: Record = {}
    for name, said in wire.items():
        if said is None or name in _FORM_FIELDS:
            continue
        if name in _PLAIN:
            field, read = _PLAIN[name]
            known[field] = fields.within(name, read, said)
        elif name in _PARTLY:
            field, read_partly = _PARTLY[name]
            known[field], left = fields.within(name, read_partly, said)
            if left:
                rest[name] = left
        else:
            rest[name] = said
    known["response_format"], left = _form(wire)
    rest |= left
    return {name: said for name, said in known.items() if said is not None}, rest or None


def _form(wire: Record) -> tuple[ResponseFormat | None, Record]:
    """Read the form that the answer must have, from the three fields that say it."""
    media_type = optional(wire, "responseMimeType", string) or ""
    stated = optional(wire, "responseSchema", record)
    schema = optional(wire, "responseJsonSchema", record)
    if stated is not None and schema is not None:
        raise Malformed("contradicts responseJsonSchema", "responseSchema")
    if schema is not None:
        schema = ordered(schema)
    if stated is not None:
        schema = json_schema_of(stated)
    if media_type == JSON:
        if schema is None:
            return ResponseFormat(kind="json_object"), {}
        return ResponseFormat(kind="json_schema", name="answer", schema=schema), {}
    # `text/x.enum`, and whatever else only Google knows.
    left = {name: wire[name] for name in _FORM_FIELDS if wire.get(name) is not None}
    return None, {} if media_type in ("", PLAIN) and schema is None else left


def _thinking(value: Any) -> tuple[ReasoningRequest, Record | None]:
    """Read how much to think, and whether it is shown. A budget of -1 leaves the former to the model."""
    wire = record(value)
    budget = optional(wire, "thinkingBudget", integer(-1, MOST_TOKENS))
    level = optional(wire, "thinkingLevel", _level)
    shown = optional(wire, "includeThoughts", boolean) is True
    effort: Any = None
    if level not in (None, _LEVELS[0]):
        effort = level.lower()
    if budget == 0:
        effort = "none"
    tokens = budget if budget is not None and budget > 0 else None
    asked = ReasoningRequest(effort=effort if tokens is None else None, max_tokens=tokens, exclude=not shown)
    return asked, fields.rest_of(wire, _THINKING_FIELDS)


def _level(value: Any) -> Any:
    return one_of(*_LEVELS)(value.upper() if isinstance(value, str) else value)


def _image_config(value: Any) -> tuple[Record | None, Record | None]:
    wire = record(value)
    known = {_PICTURE_OPTIONS[name]: optional(wire, name, string) for name in _PICTURE_OPTIONS}
    stated = {name: said for name, said in known.items() if said is not None}
    return stated or None, fields.rest_of(wire, frozenset(_PICTURE_OPTIONS))


def _modalities(value: Any) -> list[str]:
    return [modality.lower() for modality in _words(value)]


_words = list_of(string, MAX_LISTED)
_PLAIN: dict[str, tuple[str, Reader[Any]]] = {
    "temperature": ("temperature", number(0, 2)),
    "topP": ("top_p", number(0, 1)),
    "topK": ("top_k", integer(0, MOST_TOKENS)),
    "candidateCount": ("n", integer(1, 128)),
    "maxOutputTokens": ("max_tokens", integer(1, MOST_TOKENS)),
    "stopSequences": ("stop", list_of(string, MAX_STOPS)),
    "seed": ("seed", integer(-(2**31), 2**31 - 1)),
    "presencePenalty": ("presence_penalty", number(-2, 2)),
    "frequencyPenalty": ("frequency_penalty", number(-2, 2)),
    "responseLogprobs": ("logprobs", boolean),
    "logprobs": ("top_logprobs", integer(0, 20)),
    "responseModalities": ("modalities", _modalities),
}
_PARTLY: dict[str, tuple[str, Reader[tuple[Any, Record | None]]]] = {
    "thinkingConfig": ("reasoning", _thinking),
    "imageConfig": ("image_config", _image_config),
}

"""Bedrock Converse, client side: reads `messages` and `system` into canonical messages.

A user's message with tool results becomes one message for each result, then one for its other content. A cache point
marks the block before it.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from apps.gateway.canonical.chat import (
    Audio,
    CacheMark,
    File,
    Image,
    Message,
    Opaque,
    Part,
    Piece,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from apps.gateway.dialects.chat.anthropic.wire import SIGNATURE_FORMAT
from apps.gateway.dialects.chat.bedrock.provider.read_answer import inner_text, read_citation
from apps.gateway.dialects.chat.bedrock.provider.write_messages import AUDIO_FORMATS, DOCUMENTS, IMAGES, VIDEOS
from apps.gateway.dialects.chat.bedrock.wire import NAME, encode
from apps.gateway.dialects.chat.google.client import read_carrier
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import (
    Malformed,
    Reader,
    Record,
    filled_string,
    list_of,
    one_of,
    optional,
    record,
    required,
    string,
)

# Bounds far beyond any model's context.
MAX_MESSAGES, MAX_BLOCKS = 10_000, 10_000
CACHE_POINT = "cachePoint"

_P = TypeVar("_P", bound=Piece)
_PLAIN = "text/plain"
# Media types by Bedrock's word for each.
_DOCUMENT_TYPES = {word: media_type for media_type, word in DOCUMENTS.items()} | {"txt": _PLAIN}
_VIDEO_TYPES = {word: media_type for media_type, word in VIDEOS.items()} | {"mpg": "video/mpeg"}
_IMAGE_WORDS = tuple(dict.fromkeys(IMAGES.values()))


def read_messages(value: Any) -> list[Message]:
    """Read `messages`."""
    turns = _messages(value)
    if not turns:
        raise Malformed("must hold at least one message")
    return [message for turn in turns for message in turn]


def brings_carriers(messages: Sequence[Message]) -> bool:
    """Return whether a conversation has thinking in it that another maker than Anthropic signed."""
    return any(
        isinstance(part, Reasoning) and part.format not in (None, SIGNATURE_FORMAT)
        for message in messages
        for part in message.parts
    )


def marked(pieces: Sequence[_P | CacheMark]) -> list[_P]:
    """Return pieces without the cache points between them; each marks the piece before it. Raises Malformed."""
    kept: list[_P] = []
    for number, piece in enumerate(pieces):
        if not isinstance(piece, CacheMark):
            kept.append(piece)
        elif kept:
            kept[-1].cache = piece
        else:
            raise Malformed("must follow what it caches", f"[{number}].{CACHE_POINT}")
    return kept


def read_cache_point(value: Any) -> CacheMark:
    """Read `cachePoint`."""
    wire = record(value)
    required(wire, "type", one_of("default"))
    return CacheMark(ttl=optional(wire, "ttl", string))


def _content_of(readers: dict[str, Reader[Any]]) -> Callable[[Any], list[Part]]:
    """Return the reader of an array of blocks of these kinds, and of cache points."""
    read = list_of(fields.union({**readers, CACHE_POINT: read_cache_point}), MAX_BLOCKS)
    return lambda value: marked(read(value))


def _text(value: Any) -> Text:
    return Text(text=string(value))


def _no_address(value: Any) -> str:
    raise Malformed("files in S3 are not read here: send the bytes")


_bytes_source = fields.union({"bytes": filled_string, "s3Location": _no_address})
_texts = list_of(fields.union({"text": string}), MAX_BLOCKS)


def _as_bytes(text: str) -> str:
    return b64encode(text.encode("utf-8", "replace")).decode()


# The bytes of a document, and whether it was written as text.
_document_source = fields.union(
    {
        "bytes": lambda value: (filled_string(value), False),
        "text": lambda value: (_as_bytes(string(value)), True),
        "content": lambda value: (_as_bytes("\n\n".join(_texts(value))), True),
        "s3Location": _no_address,
    }
)


def _image(value: Any) -> Image:
    wire = record(value)
    word = required(wire, "format", one_of(*_IMAGE_WORDS))
    data = required(wire, "source", _bytes_source)
    return Image(url=f"data:image/{word};base64,{data}", extra=fields.rest_of(wire, frozenset({"format", "source"})))


def _document(value: Any) -> File:
    """Read a document; its name gets the ending of its format, by which other makers tell the kind."""
    wire = record(value)
    word = optional(wire, "format", one_of(*_DOCUMENT_TYPES))
    data, is_text = required(wire, "source", _document_source)
    name = required(wire, "name", filled_string)
    optional(wire, "context", string)
    optional(wire, "citations", record)
    word = word or ("txt" if is_text else None)
    return File(
        data=data,
        filename=name if word is None else f"{name}.{word}",
        media_type=None if word is None else _DOCUMENT_TYPES[word],
        extra=fields.rest_of(wire, frozenset({"format", "name", "source"})),
    )


def _video(value: Any) -> File:
    wire = record(value)
    media_type = _VIDEO_TYPES[required(wire, "format", one_of(*_VIDEO_TYPES))]
    return File(data=required(wire, "source", _bytes_source), media_type=media_type)


def _audio(value: Any) -> Audio:
    wire = record(value)
    word = required(wire, "format", one_of(*sorted(AUDIO_FORMATS)))
    return Audio(data=required(wire, "source", _bytes_source), format=word)


def _guarded_text(value: Any) -> Text:
    return Text(text=required(record(value), "text", string))


# Content for a guardrail of AWS's is content here: the gateway's own guardrails look at everything.
_guarded: Reader[Part] = fields.union({"text": _guarded_text, "image": _image})


def _search_result(value: Any) -> Opaque:
    wire = record(value)
    for name in ("source", "title"):
        required(wire, name, string)
    required(wire, "content", _texts)
    optional(wire, "citations", record)
    return Opaque(dialect=NAME, data={"searchResult": wire})


def _tool_use(value: Any) -> Part:
    """Read a call; one that the provider made itself is kept as it is."""
    wire = record(value)
    if optional(wire, "type", string) is not None:
        return Opaque(dialect=NAME, data={"toolUse": wire})
    return ToolCall(
        id=required(wire, "toolUseId", filled_string),
        name=required(wire, "name", filled_string),
        arguments=encode(optional(wire, "input", record) or {}).decode(),
        extra=fields.rest_of(wire, frozenset({"toolUseId", "name", "input"})),
    )


def _tool_result(value: Any) -> ToolResult:
    wire = record(value)
    return ToolResult(
        call_id=required(wire, "toolUseId", filled_string),
        parts=required(wire, "content", _result_parts),
        is_error=optional(wire, "status", one_of("success", "error")) == "error",
        extra=fields.rest_of(wire, frozenset({"toolUseId", "content", "status", "type"})),
    )


def _servers_result(value: Any) -> Opaque:
    """Read the result of a call that the provider made itself, within an earlier answer."""
    wire = record(value)
    required(wire, "type", filled_string)
    return Opaque(dialect=NAME, data={"toolResult": wire})


def _reasoning_text(value: Any) -> Reasoning:
    """Read thinking. The signature of another maker's thinking is a carrier that the gateway wrote."""
    wire = record(value)
    text, signature = required(wire, "text", string), optional(wire, "signature", string) or None
    if signature is not None and (carried := read_carrier(signature)):
        return replace(carried[0], text=text)
    return Reasoning(text=text, signature=signature, format=None if signature is None else SIGNATURE_FORMAT)


def _redacted(value: Any) -> Reasoning:
    """Read thinking that only its maker can read: Anthropic's in base64, or a carrier of another's."""
    encoded = filled_string(value)
    if carried := read_carrier(encoded):
        return carried[0]
    data = inner_text(encoded)
    if data is None:
        raise Malformed("must be what an answer brought")
    return Reasoning(data=data, format=SIGNATURE_FORMAT)


def _cited(value: Any) -> Text:
    """Read text with citations of documents, in Anthropic's words; those of web pages are not taken back."""
    wire = record(value)
    texts = optional(wire, "content", _texts) or []
    cited = optional(wire, "citations", list_of(record, MAX_BLOCKS)) or []
    notes = [note for citation in cited if (note := read_citation(citation)) is not None]
    return Text(text="".join(texts), extra={"citations": notes} if notes else None)


_result_parts: Reader[list[Part]] = list_of(
    fields.union(
        {
            "text": _text,
            "json": lambda value: Text(text=encode(value).decode()),
            "image": _image,
            "document": _document,
            "video": _video,
            "searchResult": _search_result,
        }
    ),
    MAX_BLOCKS,
)
_user_content = _content_of(
    {
        "text": _text,
        "image": _image,
        "document": _document,
        "video": _video,
        "audio": _audio,
        "toolResult": _tool_result,
        "guardContent": _guarded,
        "searchResult": _search_result,
    }
)
_answer_content = _content_of(
    {
        "text": _text,
        "image": _image,
        "toolUse": _tool_use,
        "toolResult": _servers_result,
        "reasoningContent": fields.union({"reasoningText": _reasoning_text, "redactedContent": _redacted}),
        "citationsContent": _cited,
        "guardContent": _guarded,
    }
)
# Instructions: `system`, and messages of the role `system`.
read_system = _content_of({"text": _text, "guardContent": fields.union({"text": _guarded_text})})

_FIELDS = frozenset({"role", "content"})


def _user(wire: Record) -> list[Message]:
    parts = required(wire, "content", _user_content)
    turns = [Message(role="tool", parts=[part]) for part in parts if isinstance(part, ToolResult)]
    others: list[Part] = [part for part in parts if not isinstance(part, ToolResult)]
    if others or not turns:
        turns.append(Message(role="user", parts=others))
    turns[-1].extra = fields.rest_of(wire, _FIELDS)
    return turns


def _assistant(wire: Record) -> list[Message]:
    parts = required(wire, "content", _answer_content)
    return [Message(role="assistant", parts=parts, extra=fields.rest_of(wire, _FIELDS))]


def _system(wire: Record) -> list[Message]:
    return [Message(role="system", parts=required(wire, "content", read_system))]


_read_by_role = fields.pick({"user": _user, "assistant": _assistant, "system": _system}, "role")
_messages = list_of(lambda value: _read_by_role(record(value)), MAX_MESSAGES)

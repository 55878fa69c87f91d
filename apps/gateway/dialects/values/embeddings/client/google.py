"""Google embeddings, client side: `embedContent` for one content, `batchEmbedContents` for many; writes vectors.

The path states the model.
"""

from __future__ import annotations

from typing import Any, Final

from apps.gateway.canonical.chat import Chat, DroppedField, Message, Text
from apps.gateway.canonical.events import Reply, Summary
from apps.gateway.canonical.task_options import Embedding, InputType
from apps.gateway.dialects.chat.google.client import camel_cased
from apps.gateway.dialects.chat.google.wire import encode
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import Malformed, Record, integer, list_of, one_of, optional, record, required
from apps.gateway.dialects.values.embeddings import to_numbers
from apps.gateway.dialects.values.embeddings.client.openai import MAX_DIMENSIONS, MAX_INPUTS
from apps.gateway.dialects.values.embeddings.provider import TASK_TYPES

_MAX_MODEL_LENGTH: Final = 512
_MAX_PARTS: Final = 64
_INPUT_TYPES: Final[dict[str, InputType]] = {word: kind for kind, word in TASK_TYPES.items()}
_UNSPECIFIED: Final = "TASK_TYPE_UNSPECIFIED"
_KNOWN: Final = frozenset({"model", "content", "taskType", "title", "outputDimensionality"})


def read_single(body: bytes, model: str) -> Chat:
    """Return the request for one vector. Raises InvalidRequest naming the field."""
    return _refusing(body, model, lambda wire: {"": wire})


def read_batch(body: bytes, model: str) -> Chat:
    """Return the request for many vectors. Raises InvalidRequest naming the field."""
    return _refusing(body, model, _requests)


def write_single(reply: Reply, summary: Summary, chat: Chat) -> bytes:
    """Return the vector."""
    return encode({"embedding": {"values": to_numbers(reply.results[0])}, **_about(summary)})


def write_batch(reply: Reply, summary: Summary, chat: Chat) -> bytes:
    """Return the vectors, in the order of their requests."""
    return encode({"embeddings": [{"values": to_numbers(vector)} for vector in reply.results], **_about(summary)})


def _about(summary: Summary) -> Record:
    return {"usageMetadata": {"promptTokenCount": summary.usage.prompt_tokens}, "metadata": summary.metadata}


def _requests(wire: Record) -> dict[str, Record]:
    """Return the requests by their path in the body."""
    asked = required(wire, "requests", list_of(record, MAX_INPUTS))
    if not asked:
        raise Malformed("must not be empty", "requests")
    return {f"requests[{place}]": request for place, request in enumerate(asked)}


def _refusing(body: bytes, model: str, requests_in: Any) -> Chat:
    if len(model) > _MAX_MODEL_LENGTH or not model:
        raise Malformed(f"must have 1 to {_MAX_MODEL_LENGTH} characters", "model").as_error()
    given = fields.read_json(body)
    wire = camel_cased(given, body)
    try:
        fields.check_beside(wire, body, frozenset({"requests", "content"}))
        return _read(requests_in(wire), model)
    except Malformed as refusal:
        raise refusal.as_error() from None


def _read(requests: dict[str, Record], model: str) -> Chat:
    texts: list[Text] = []
    options: Embedding | None = None
    unknown: set[str] = set()
    for here, request in requests.items():
        try:
            texts.append(Text(text=required(request, "content", _text)))
            stated = _options(request)
        except Malformed as refusal:
            raise (refusal.under(here) if here else refusal) from None
        if options is not None and stated != options:
            raise Malformed("must ask for the same form as the first: taskType, title, outputDimensionality", here)
        options = stated
        unknown |= {name for name, value in request.items() if name not in _KNOWN and value is not None}
    dropped = [
        DroppedField(name[: fields.MAX_QUOTED_NAME], "embeddings have no such option") for name in sorted(unknown)
    ]
    return Chat(
        model=model,
        messages=[Message(role="user", parts=[*texts])],
        task="embeddings",
        embedding=options,
        dropped_fields=dropped or None,
    )


def _options(request: Record) -> Embedding:
    task = optional(request, "taskType", one_of(*_INPUT_TYPES, _UNSPECIFIED))
    return Embedding(
        dimensions=optional(request, "outputDimensionality", integer(1, MAX_DIMENSIONS)),
        input_type=None if task is None else _INPUT_TYPES.get(task),
        title=optional(request, "title", _title),
    )


def _text(value: Any) -> str:
    """Read a content: its parts are one text."""
    text = "".join(required(record(value), "parts", list_of(_part, _MAX_PARTS)))
    if not text:
        raise Malformed("must hold a text", "parts")
    return text


def _part(value: Any) -> str:
    part = record(value)
    if part.keys() - {"text"}:
        raise Malformed("must be a text: nothing else is embedded here")
    return required(part, "text", fields.string)


def _title(value: Any) -> str:
    if len(fields.filled_string(value)) > _MAX_MODEL_LENGTH:
        raise Malformed(f"must be at most {_MAX_MODEL_LENGTH} characters long")
    return str(value)

"""Cohere embeddings, client side: reads `/v2/embed`, writes vectors by type."""

from __future__ import annotations

from typing import Any, Final

from apps.gateway.canonical.chat import Chat, DroppedField, Message, Text
from apps.gateway.canonical.events import Reply, Summary
from apps.gateway.canonical.task_options import Embedding
from apps.gateway.dialects.chat.openai.wire import encode, write_error
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import Malformed, Reader, Record, filled_string, integer, list_of, one_of
from apps.gateway.dialects.reading.router_fields import take_router_fields
from apps.gateway.dialects.values.embeddings import to_base64, to_numbers
from apps.gateway.dialects.values.embeddings.client.openai import INPUT_TYPES, MAX_DIMENSIONS, MAX_INPUTS

__all__ = ["read_request", "write_error", "write_reply"]

_MAX_NAME_LENGTH: Final = 512
_COHERES: Final = ("search_query", "search_document", "classification", "clustering")
_FLOAT, _BASE64 = "float", "base64"


def read_request(body: bytes) -> Chat:
    """Return the request for embeddings. Raises InvalidRequest naming the field."""
    return fields.read_body(body, frozenset({"texts"}), _read)


def write_reply(reply: Reply, summary: Summary, chat: Chat) -> bytes:
    """Return the vectors under their type, in the order of the texts."""
    in_base64 = chat.embedding is not None and chat.embedding.base64
    vectors = {_BASE64: [to_base64(vector) for vector in reply.results]} if in_base64 else {}
    return encode(
        {
            "id": f"embd-{reply.log_id}",
            "response_type": "embeddings_by_type",
            "embeddings": vectors or {_FLOAT: [to_numbers(vector) for vector in reply.results]},
            "texts": [part.text for part in chat.messages[0].parts if isinstance(part, Text)],
            "meta": {
                "api_version": {"version": "2"},
                "billed_units": {"input_tokens": summary.usage.prompt_tokens},
            },
            "metadata": summary.metadata,
        }
    )


def _read(wire: Record) -> Chat:
    known, unknown = fields.read_known(wire, _READERS)
    if "texts" not in known:
        raise Malformed("Required", "texts")
    chosen: dict[str, Any] = {"model": known["model"]} if "model" in known else {}
    take_router_fields(unknown, chosen)
    if "model" not in chosen:
        raise Malformed("Required", "model")
    dropped = [DroppedField(name[: fields.MAX_QUOTED_NAME], "embeddings have no such option") for name in unknown]
    dropped_fields = [*chosen.pop("dropped_fields", ()), *dropped]
    return Chat(
        messages=[Message(role="user", parts=[Text(text=text) for text in known["texts"]])],
        task="embeddings",
        embedding=Embedding(
            dimensions=known.get("output_dimension"),
            base64=known.get("embedding_types") == _BASE64,
            input_type=INPUT_TYPES[known["input_type"]] if "input_type" in known else None,
        ),
        dropped_fields=dropped_fields or None,
        **chosen,
    )


def _texts(value: Any) -> list[str]:
    texts = list_of(filled_string, MAX_INPUTS)(value)
    if not texts:
        raise Malformed("must not be empty")
    return texts


def _only_texts(value: Any) -> None:
    raise Malformed("only `texts` can be embedded here")


def _type(value: Any) -> str:
    """Read the one type that vectors are to have: no provider gives several in one answer."""
    if not isinstance(value, list) or len(value) != 1:
        raise Malformed("must hold one type: `float` or `base64`")
    return str(list_of(one_of(_FLOAT, _BASE64), 1)(value)[0])


def _name(value: Any) -> str:
    if len(filled_string(value)) > _MAX_NAME_LENGTH:
        raise Malformed(f"must be at most {_MAX_NAME_LENGTH} characters long")
    return str(value)


_READERS: Final[dict[str, Reader[Any]]] = {
    "model": _name,
    "texts": _texts,
    "images": _only_texts,
    "inputs": _only_texts,
    "input_type": one_of(*_COHERES),
    "embedding_types": _type,
    "output_dimension": integer(1, MAX_DIMENSIONS),
}

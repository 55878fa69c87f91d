"""Ollama's embeddings, client side: reads `/api/embed` and the older `/api/embeddings`, writes vectors."""

from __future__ import annotations

from typing import Any, Final

from apps.gateway.canonical.chat import Chat, DroppedField, Message, Text
from apps.gateway.canonical.events import Reply, Summary
from apps.gateway.canonical.task_options import Embedding
from apps.gateway.dialects.chat.ollama.client.read_request import LOADING_OPTIONS, MAX_MODEL
from apps.gateway.dialects.chat.ollama.wire import encode, model_name, write_counts
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import (
    Malformed,
    Reader,
    Record,
    boolean,
    filled_string,
    integer,
    list_of,
    record,
)
from apps.gateway.dialects.reading.router_fields import take_router_fields
from apps.gateway.dialects.values.embeddings import to_numbers
from apps.gateway.dialects.values.embeddings.client.openai import MAX_DIMENSIONS, MAX_INPUTS

_UNKNOWN: Final = "embeddings have no such option"
_NEVER_CUT: Final = "an input that is too long is refused, not cut"


def read_request(body: bytes) -> Chat:
    """Return the request for the vectors of one text or several. Raises InvalidRequest naming the field."""
    return fields.read_body(body, frozenset({"input"}), lambda wire: _read(wire, "input", _inputs))


def read_single(body: bytes) -> Chat:
    """Return the request for one vector, in the older format. Raises InvalidRequest naming the field."""
    return fields.read_body(body, frozenset({"prompt"}), lambda wire: _read(wire, "prompt", _prompt))


def write_reply(reply: Reply, summary: Summary, chat: Chat) -> bytes:
    """Return the vectors, in the order of the texts."""
    counts = write_counts(summary)
    about = ("total_duration", "load_duration", "prompt_eval_count", "cost_usd", "metadata")
    return encode(
        {
            "model": summary.metadata.get("used_model") or reply.model,
            "embeddings": [to_numbers(vector) for vector in reply.results],
            **{name: counts[name] for name in about},
        }
    )


def write_single(reply: Reply, summary: Summary, chat: Chat) -> bytes:
    """Return the vector, in the older format."""
    return encode({"embedding": to_numbers(reply.results[0]), "metadata": summary.metadata})


def _read(wire: Record, field: str, read_texts: Reader[list[str]]) -> Chat:
    known, unknown = fields.read_known(wire, {**_READERS, field: read_texts})
    unknown.pop("keep_alive", None)
    chosen: dict[str, Any] = {"model": known["model"]} if "model" in known else {}
    take_router_fields(unknown, chosen)
    if "model" not in chosen:
        raise Malformed("Required", "model")
    if field not in known:
        raise Malformed("Required", field)
    dropped = [DroppedField(name[: fields.MAX_QUOTED_NAME], _UNKNOWN) for name in unknown]
    options = [
        f"options.{name}"[: fields.MAX_QUOTED_NAME] for name in known.get("options", {}).keys() - LOADING_OPTIONS
    ]
    dropped += [DroppedField(name, _UNKNOWN) for name in sorted(options)]
    if known.get("truncate"):
        dropped.append(DroppedField("truncate", _NEVER_CUT))
    dropped_fields = [*chosen.pop("dropped_fields", ()), *dropped]
    return Chat(
        messages=[Message(role="user", parts=[Text(text=text) for text in known[field]])],
        task="embeddings",
        embedding=Embedding(dimensions=known.get("dimensions") or None),
        dropped_fields=dropped_fields or None,
        **chosen,
    )


def _model(value: Any) -> str:
    if len(filled_string(value)) > MAX_MODEL:
        raise Malformed(f"must be at most {MAX_MODEL} characters long")
    return model_name(str(value))


def _inputs(value: Any) -> list[str]:
    texts = _prompt(value) if isinstance(value, str) else list_of(filled_string, MAX_INPUTS)(value)
    if not texts:
        raise Malformed("must not be empty")
    return texts


def _prompt(value: Any) -> list[str]:
    return [filled_string(value)]


_READERS: Final[dict[str, Reader[Any]]] = {
    "model": _model,
    "dimensions": integer(0, MAX_DIMENSIONS),
    "options": record,
    "truncate": boolean,
}

"""OpenAI embeddings, client side: reads requests, writes vectors."""

from __future__ import annotations

from typing import Any, Final

from apps.gateway.canonical.chat import Chat, DroppedField, Message, Text
from apps.gateway.canonical.events import Reply, Summary
from apps.gateway.canonical.task_options import Embedding, InputType
from apps.gateway.dialects import ClientErrorWriter
from apps.gateway.dialects.chat.openai.wire import encode, write_detailed_error
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import Malformed, Reader, Record, boolean, filled_string, integer, one_of
from apps.gateway.dialects.reading.router_fields import take_router_fields
from apps.gateway.dialects.values.embeddings import to_base64, to_numbers

# Errors with a `detail` as well, which Voyage's clients read.
ERRORS: Final = ClientErrorWriter(write_error=write_detailed_error)

MAX_INPUTS: Final = 2048
MAX_DIMENSIONS: Final = 16_384
_MAX_NAME_LENGTH: Final = 512
_MAX_TOKEN: Final = 2**31 - 1
# Clients' names for the purpose of vectors: OpenAI's extensions, Cohere's, Voyage's, Jina's and Google's.
INPUT_TYPES: Final[dict[str, InputType]] = {
    "query": "query",
    "search_query": "query",
    "retrieval.query": "query",
    "RETRIEVAL_QUERY": "query",
    "document": "document",
    "passage": "document",
    "code.query": "code_query",
    "code.passage": "document",
    "search_document": "document",
    "retrieval.passage": "document",
    "RETRIEVAL_DOCUMENT": "document",
    "similarity": "similarity",
    "text-matching": "similarity",
    "SEMANTIC_SIMILARITY": "similarity",
    "classification": "classification",
    "CLASSIFICATION": "classification",
    "clustering": "clustering",
    "separation": "clustering",
    "CLUSTERING": "clustering",
    "question_answering": "question_answering",
    "QUESTION_ANSWERING": "question_answering",
    "fact_verification": "fact_verification",
    "FACT_VERIFICATION": "fact_verification",
    "code_query": "code_query",
    "CODE_RETRIEVAL_QUERY": "code_query",
}


# Options with a fixed value, that value, and the refusal of any other.
_ALWAYS: Final = {
    "normalized": (True, "vectors are as the provider gives them by itself"),
    "truncate": (False, "an input that is too long is refused, not cut"),
}


def read_request(body: bytes) -> Chat:
    """Return the request for embeddings. Raises InvalidRequest naming the field."""
    return fields.read_body(body, frozenset({"input"}), _read)


def write_reply(reply: Reply, summary: Summary, chat: Chat) -> bytes:
    """Return the vectors, in the order of their inputs."""
    write = to_base64 if chat.embedding is not None and chat.embedding.base64 else to_numbers
    usage = summary.usage
    return encode(
        {
            "object": "list",
            "data": [
                {"object": "embedding", "index": index, "embedding": write(vector)}
                for index, vector in enumerate(reply.results)
            ],
            "model": summary.metadata.get("used_model") or reply.model,
            "usage": {"prompt_tokens": usage.prompt_tokens, "total_tokens": usage.total_tokens},
            "metadata": summary.metadata,
        }
    )


def _read(wire: Record) -> Chat:
    known, unknown = fields.read_known(wire, _READERS)
    if "input" not in known:
        raise Malformed("Required", "input")
    texts, tokens = known.pop("input")
    chosen: dict[str, Any] = {"model": known["model"]} if "model" in known else {}
    take_router_fields(unknown, chosen)
    if "model" not in chosen:
        raise Malformed("Required", "model")
    # Not sent on: an unknown field could change the cost of vectors, or their form.
    dropped = [DroppedField(name[: fields.MAX_QUOTED_NAME], "embeddings have no such option") for name in unknown]
    dropped += [
        DroppedField(name, why) for name, (usual, why) in _ALWAYS.items() if known.get(name, usual) is not usual
    ]
    dropped_fields = [*chosen.pop("dropped_fields", ()), *dropped]
    return Chat(
        messages=[Message(role="user", parts=[Text(text=text) for text in texts])],
        user=known.get("user"),
        task="embeddings",
        embedding=Embedding(
            tokens=tokens,
            dimensions=known.get("dimensions") or known.get("output_dimension"),
            base64=(known.get("encoding_format") or known.get("embedding_type")) == "base64",
            input_type=known.get("input_type") or known.get("task_type") or known.get("task"),
            title=known.get("title"),
        ),
        dropped_fields=dropped_fields or None,
        **chosen,
    )


def _input(value: Any) -> tuple[list[str], list[list[int]] | None]:
    """Read the inputs: as texts, or as tokens."""
    if isinstance(value, str):
        return [filled_string(value)], None
    if not isinstance(value, list):
        raise Malformed("must be a string, an array of strings, or one or more arrays of tokens")
    if not value:
        raise Malformed("must not be empty")
    if isinstance(value[0], int):
        return [], [_tokens(value)]
    if len(value) > MAX_INPUTS:
        raise Malformed(f"must hold at most {MAX_INPUTS} inputs")
    if isinstance(value[0], list):
        return [], fields.list_of(_tokens, MAX_INPUTS)(value)
    return fields.list_of(filled_string, MAX_INPUTS)(value), None


def _tokens(value: Any) -> list[int]:
    if not isinstance(value, list) or not value:
        raise Malformed("must be an array of tokens, and not an empty one")
    for place, token in enumerate(value):
        if type(token) is not int or not 0 <= token <= _MAX_TOKEN:
            raise Malformed("must be a token: an integer of at least 0", f"[{place}]")
    return value


def _name(value: Any) -> str:
    if len(filled_string(value)) > _MAX_NAME_LENGTH:
        raise Malformed(f"must be at most {_MAX_NAME_LENGTH} characters long")
    return str(value)


def _input_type(value: Any) -> InputType:
    return INPUT_TYPES[one_of(*INPUT_TYPES)(value)]


_READERS: Final[dict[str, Reader[Any]]] = {
    "input": _input,
    "model": _name,
    "dimensions": integer(1, MAX_DIMENSIONS),
    # The name in Voyage's and Mistral's formats.
    "output_dimension": integer(1, MAX_DIMENSIONS),
    "encoding_format": one_of("float", "base64"),
    # The name in Jina's format, and the fields beside it.
    "embedding_type": one_of("float", "base64"),
    "normalized": boolean,
    "truncate": boolean,
    "user": fields.string,
    "input_type": _input_type,
    "task_type": _input_type,
    "task": _input_type,
    "title": _name,
}

"""Embeddings, client side: reads requests in the formats of OpenAI, Cohere, Google and Ollama, writes their replies.

OpenAI's `/v1/embeddings` takes fields of Voyage's, Mistral's and Jina's formats, too. Cohere's is `/v2/embed`, Google's
`embedContent` and `batchEmbedContents`, Ollama's `/api/embed` and `/api/embeddings`.
"""

from __future__ import annotations

from typing import Any, Final

from apps.gateway.canonical.chat import Chat, DroppedField, Message, Text
from apps.gateway.canonical.events import Reply, Summary
from apps.gateway.canonical.task_options import Embedding, InputType
from apps.gateway.dialects import ClientErrorWriter
from apps.gateway.dialects.chat.google.client import camel_cased
from apps.gateway.dialects.chat.google.wire import encode as encode_google
from apps.gateway.dialects.chat.ollama.read_request import LOADING_OPTIONS, MAX_MODEL
from apps.gateway.dialects.chat.ollama.wire import encode as encode_ollama
from apps.gateway.dialects.chat.ollama.wire import model_name, write_counts
from apps.gateway.dialects.chat.openai.wire import encode, write_detailed_error
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import (
    Malformed,
    Reader,
    Record,
    boolean,
    bounded_name,
    filled_string,
    integer,
    list_of,
    one_of,
    optional,
    record,
    required,
)
from apps.gateway.dialects.reading.router_fields import take_router_fields
from apps.gateway.dialects.values.embeddings import to_base64, to_numbers
from apps.gateway.dialects.values.embeddings.provider import TASK_TYPES

# Errors with a `detail` as well, which Voyage's clients read.
ERRORS: Final = ClientErrorWriter(write_error=write_detailed_error)

MAX_INPUTS: Final = 2048
MAX_DIMENSIONS: Final = 16_384
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


def read_openai_request(body: bytes) -> Chat:
    """Return the request for embeddings. Raises InvalidRequest naming the field."""
    return fields.read_body(body, frozenset({"input"}), _read_openai)


def write_openai_reply(reply: Reply, summary: Summary, chat: Chat) -> bytes:
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


def _read_openai(wire: Record) -> Chat:
    known, unknown = fields.read_known(wire, _OPENAI_READERS)
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


def _input_type(value: Any) -> InputType:
    return INPUT_TYPES[one_of(*INPUT_TYPES)(value)]


_OPENAI_READERS: Final[dict[str, Reader[Any]]] = {
    "input": _input,
    "model": bounded_name,
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
    "title": bounded_name,
}


_COHERES: Final = ("search_query", "search_document", "classification", "clustering")
_FLOAT, _BASE64 = "float", "base64"


def read_cohere_request(body: bytes) -> Chat:
    """Return the request for embeddings. Raises InvalidRequest naming the field."""
    return fields.read_body(body, frozenset({"texts"}), _read_cohere)


def write_cohere_reply(reply: Reply, summary: Summary, chat: Chat) -> bytes:
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


def _read_cohere(wire: Record) -> Chat:
    known, unknown = fields.read_known(wire, _COHERE_READERS)
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


_COHERE_READERS: Final[dict[str, Reader[Any]]] = {
    "model": bounded_name,
    "texts": _texts,
    "images": _only_texts,
    "inputs": _only_texts,
    "input_type": one_of(*_COHERES),
    "embedding_types": _type,
    "output_dimension": integer(1, MAX_DIMENSIONS),
}


_MAX_MODEL_LENGTH: Final = 512
_MAX_PARTS: Final = 64
_INPUT_TYPES: Final[dict[str, InputType]] = {word: kind for kind, word in TASK_TYPES.items()}
_UNSPECIFIED: Final = "TASK_TYPE_UNSPECIFIED"
_KNOWN: Final = frozenset({"model", "content", "taskType", "title", "outputDimensionality"})


def read_google_single(body: bytes, model: str) -> Chat:
    """Return the request for one vector. Raises InvalidRequest naming the field."""
    return _refusing(body, model, lambda wire: {"": wire})


def read_google_batch(body: bytes, model: str) -> Chat:
    """Return the request for many vectors. Raises InvalidRequest naming the field."""
    return _refusing(body, model, _requests)


def write_google_single(reply: Reply, summary: Summary, chat: Chat) -> bytes:
    """Return the vector."""
    return encode_google({"embedding": {"values": to_numbers(reply.results[0])}, **_about(summary)})


def write_google_batch(reply: Reply, summary: Summary, chat: Chat) -> bytes:
    """Return the vectors, in the order of their requests."""
    return encode_google(
        {"embeddings": [{"values": to_numbers(vector)} for vector in reply.results], **_about(summary)}
    )


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
        return _read_google(requests_in(wire), model)
    except Malformed as refusal:
        raise refusal.as_error() from None


def _read_google(requests: dict[str, Record], model: str) -> Chat:
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
        title=optional(request, "title", bounded_name),
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


_UNKNOWN: Final = "embeddings have no such option"
_NEVER_CUT: Final = "an input that is too long is refused, not cut"


def read_ollama_request(body: bytes) -> Chat:
    """Return the request for the vectors of one text or several. Raises InvalidRequest naming the field."""
    return fields.read_body(body, frozenset({"input"}), lambda wire: _read_ollama(wire, "input", _inputs))


def read_ollama_single(body: bytes) -> Chat:
    """Return the request for one vector, in the older format. Raises InvalidRequest naming the field."""
    return fields.read_body(body, frozenset({"prompt"}), lambda wire: _read_ollama(wire, "prompt", _prompt))


def write_ollama_reply(reply: Reply, summary: Summary, chat: Chat) -> bytes:
    """Return the vectors, in the order of the texts."""
    counts = write_counts(summary)
    about = ("total_duration", "load_duration", "prompt_eval_count", "cost_usd", "metadata")
    return encode_ollama(
        {
            "model": summary.metadata.get("used_model") or reply.model,
            "embeddings": [to_numbers(vector) for vector in reply.results],
            **{name: counts[name] for name in about},
        }
    )


def write_ollama_single(reply: Reply, summary: Summary, chat: Chat) -> bytes:
    """Return the vector, in the older format."""
    return encode_ollama({"embedding": to_numbers(reply.results[0]), "metadata": summary.metadata})


def _read_ollama(wire: Record, field: str, read_texts: Reader[list[str]]) -> Chat:
    known, unknown = fields.read_known(wire, {**_OLLAMA_READERS, field: read_texts})
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


_OLLAMA_READERS: Final[dict[str, Reader[Any]]] = {
    "model": _model,
    "dimensions": integer(0, MAX_DIMENSIONS),
    "options": record,
    "truncate": boolean,
}

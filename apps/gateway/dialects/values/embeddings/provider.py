"""Embedding dialects, provider side: write requests, read vectors; and how the dialect of an offer is found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import Event, Failed
from apps.gateway.canonical.task_options import InputType
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.chat.bedrock.wire import encode as bedrock_encode
from apps.gateway.dialects.chat.bedrock.wire import read_failure as read_bedrock_failure
from apps.gateway.dialects.chat.cohere.wire import read_failure as read_cohere_failure
from apps.gateway.dialects.chat.google.wire import encode as google_encode
from apps.gateway.dialects.chat.google.wire import read_failure as read_google_failure
from apps.gateway.dialects.chat.openai.wire import encode as openai_encode
from apps.gateway.dialects.chat.openai.wire import failed, find_failure
from apps.gateway.dialects.chat.openai.wire import read_failure as read_openai_failure
from apps.gateway.dialects.chat.vertex import model_path, url_of_path
from apps.gateway.dialects.reading.answers import count_at, never_streamed, read_answer, read_count
from apps.gateway.dialects.values.embeddings import (
    capabilities_of,
    embedding_of,
    events_of,
    note_options,
    read_as,
    texts_of,
)

# --- OpenAI embeddings, provider side: `/embeddings`, as OpenAI, Mistral, Voyage and compatible servers have it.
#
# Sources: OpenAI's API reference, docs.mistral.ai/api/endpoint/embeddings and Voyage's reference (November 2026). The
# options of a model are facts (docs/adding-a-provider.md).


def openai_path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return "/embeddings"


def write_openai_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    capabilities, embedding = capabilities_of(target.facts), embedding_of(chat)
    note_options(embedding, capabilities, target, ("user", chat.user))
    wire: dict[str, Any] = {
        "model": target.model_name,
        "input": texts_of(chat) if embedding.tokens is None else embedding.tokens,
    }
    if embedding.dimensions is not None and embedding.dimensions != target.facts.get("dimensions"):
        wire[capabilities.dimensions_field] = embedding.dimensions
    if embedding.base64 and "base64" in capabilities.takes:
        wire["encoding_format"] = "base64"
    if (word := capabilities.word_for(embedding.input_type, target)) is not None:
        wire["input_type"] = word
    if chat.user is not None and "user" in capabilities.takes:
        wire["user"] = chat.user
    return openai_encode(wire)


def read_openai_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer. One that cannot be read, or holds an error, ends with `Failed`."""
    answer = read_as(body, _OpenAIAnswer)
    if isinstance(answer, Failed):
        yield _failure_in(body) or answer
        return
    items = answer.data
    if any(item.index != place for place, item in enumerate(items)) and all(item.index >= 0 for item in items):
        items = sorted(items, key=lambda item: item.index)
    tokens = count_at(answer.usage, "prompt_tokens") or count_at(answer.usage, "total_tokens")
    yield from events_of([item.embedding for item in items], tokens)


def _failure_in(body: bytes) -> Failed | None:
    """Return the failure that an answer of status 200 holds, None where it holds none."""
    try:
        answer = read_answer(body)
    except ValueError:
        return None
    failure = find_failure(answer)
    return None if failure is None else failed(answer, failure)


class _Item(msgspec.Struct):
    embedding: list[float] | str
    index: int = -1


class _OpenAIAnswer(msgspec.Struct):
    data: list[_Item]
    usage: Any = None


OPENAI: Final = ProviderDialect(
    name="openai",
    path=openai_path,
    write_request=write_openai_request,
    read_reply=read_openai_reply,
    read_events=never_streamed,
    read_failure=read_openai_failure,
)


# --- Jina embeddings, provider side: `/embeddings` with a `task`, answered as OpenAI does.
#
# Source: Jina's API reference, api.jina.ai/openapi.json (November 2026).


def write_jina_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request. A text that is too long is refused there, not cut in silence."""
    capabilities, embedding = capabilities_of(target.facts), embedding_of(chat)
    note_options(embedding, capabilities, target, ("user", chat.user))
    wire: dict[str, Any] = {
        "model": target.model_name,
        "input": texts_of(chat),
        "embedding_type": "base64" if embedding.base64 and "base64" in capabilities.takes else "float",
        "normalized": True,
        "truncate": False,
    }
    if embedding.dimensions is not None and embedding.dimensions != target.facts.get("dimensions"):
        wire["dimensions"] = embedding.dimensions
    if (task := capabilities.word_for(embedding.input_type, target)) is not None:
        wire["task"] = task
    return openai_encode(wire)


JINA: Final = ProviderDialect(
    name="jina",
    path=openai_path,
    write_request=write_jina_request,
    read_reply=read_openai_reply,
    read_events=never_streamed,
    read_failure=read_openai_failure,
)


# --- Cohere embeddings, provider side: `/v2/embed`, which requires the purpose of the vectors.
#
# Source: docs.cohere.com/reference/embed, as of 2025.

# Cohere's words for what vectors are for; a purpose that it has no word for is the nearest that it has.
_INPUT_TYPES: Final[dict[InputType, str]] = {
    "query": "search_query",
    "document": "search_document",
    "similarity": "clustering",
    "classification": "classification",
    "clustering": "clustering",
    "question_answering": "search_query",
    "fact_verification": "search_query",
    "code_query": "search_query",
}
_DEFAULT_INPUT_TYPE: Final = "search_document"


def cohere_path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return "/embed"


def write_cohere_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request. A text that is too long is refused there, not cut in silence."""
    capabilities, embedding = capabilities_of(target.facts), embedding_of(chat)
    note_options(msgspec.structs.replace(embedding, input_type=None), capabilities, target, ("user", chat.user))
    wire: dict[str, Any] = {
        "model": target.model_name,
        "texts": texts_of(chat),
        "input_type": _DEFAULT_INPUT_TYPE if embedding.input_type is None else _INPUT_TYPES[embedding.input_type],
        "embedding_types": ["float"],
        "truncate": "NONE",
    }
    if embedding.dimensions is not None and embedding.dimensions != target.facts.get("dimensions"):
        wire["output_dimension"] = embedding.dimensions
    return openai_encode(wire)


def read_cohere_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer. One that cannot be read ends with `Failed`."""
    answer = read_as(body, _CohereAnswer)
    if isinstance(answer, Failed):
        yield answer
        return
    yield from events_of(answer.embeddings.numbers, count_at(answer.meta, "billed_units", "input_tokens"))


class _Vectors(msgspec.Struct):
    numbers: list[list[float]] = msgspec.field(name="float")


class _CohereAnswer(msgspec.Struct):
    embeddings: _Vectors
    meta: Any = None


COHERE: Final = ProviderDialect(
    name="cohere",
    path=cohere_path,
    write_request=write_cohere_request,
    read_reply=read_cohere_reply,
    read_events=never_streamed,
    read_failure=read_cohere_failure,
)


# --- Google embeddings, provider side: `batchEmbedContents` of AI Studio, which tells no counts.
#
# Source: ai.google.dev/api/embeddings, as of 2025.

# Google's words for what vectors are for.
TASK_TYPES: Final[dict[InputType, str]] = {
    "query": "RETRIEVAL_QUERY",
    "document": "RETRIEVAL_DOCUMENT",
    "similarity": "SEMANTIC_SIMILARITY",
    "classification": "CLASSIFICATION",
    "clustering": "CLUSTERING",
    "question_answering": "QUESTION_ANSWERING",
    "fact_verification": "FACT_VERIFICATION",
    "code_query": "CODE_RETRIEVAL_QUERY",
}


def google_path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return f"/models/{target.model_name}:batchEmbedContents"


def write_google_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    capabilities, embedding = capabilities_of(target.facts), embedding_of(chat)
    note_options(embedding, capabilities, target, ("user", chat.user))
    options: dict[str, Any] = {"model": f"models/{target.model_name}"}
    if embedding.input_type is not None and "input_type" in capabilities.takes:
        options["taskType"] = TASK_TYPES[embedding.input_type]
    if embedding.title is not None and "title" in capabilities.takes:
        options["title"] = embedding.title
    if embedding.dimensions is not None:
        options["outputDimensionality"] = embedding.dimensions
    return google_encode({"requests": [{**options, "content": {"parts": [{"text": text}]}} for text in texts_of(chat)]})


def read_google_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer. One that cannot be read ends with `Failed`."""
    answer = read_as(body, _GoogleAnswer)
    if isinstance(answer, Failed):
        yield answer
        return
    yield from events_of([one.values for one in answer.embeddings], count_at(answer.usage, "promptTokenCount"))


class _GoogleVector(msgspec.Struct, frozen=True):
    values: list[float]


class _GoogleAnswer(msgspec.Struct):
    embeddings: list[_GoogleVector]
    usage: Any = msgspec.field(default=None, name="usageMetadata")


GOOGLE: Final = ProviderDialect(
    name="google",
    path=google_path,
    write_request=write_google_request,
    read_reply=read_google_reply,
    read_events=never_streamed,
    read_failure=read_google_failure,
)


# --- Vertex AI embeddings, provider side: `predict`, with a count for each input.
#
# Source: cloud.google.com/vertex-ai/generative-ai/docs/embeddings/get-text-embeddings (November 2026): up to 250 inputs
# and 20,000 tokens a call, one input of `gemini-embedding-001`.


def vertex_path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL, which ends with project and location."""
    return model_path("google", target.model_name, "predict")


def vertex_url(base_url: str, chat: Chat, target: Target) -> str:
    """Return where the request goes."""
    return url_of_path(base_url, vertex_path(chat, target))


def write_vertex_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request. A text that is too long is refused there, not cut in silence."""
    capabilities, embedding = capabilities_of(target.facts), embedding_of(chat)
    note_options(embedding, capabilities, target, ("user", chat.user))
    options: dict[str, Any] = {}
    if embedding.input_type is not None and "input_type" in capabilities.takes:
        options["task_type"] = TASK_TYPES[embedding.input_type]
    if embedding.title is not None and "title" in capabilities.takes:
        options["title"] = embedding.title
    parameters: dict[str, Any] = {"autoTruncate": False}
    if embedding.dimensions is not None:
        parameters["outputDimensionality"] = embedding.dimensions
    return google_encode(
        {"instances": [{"content": text, **options} for text in texts_of(chat)], "parameters": parameters}
    )


def read_vertex_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer. One that cannot be read ends with `Failed`."""
    answer = read_as(body, _VertexAnswer)
    if isinstance(answer, Failed):
        yield answer
        return
    vectors = [one.embeddings for one in answer.predictions]
    counts = [count_at(one.statistics, "token_count") for one in vectors]
    yield from events_of([one.values for one in vectors], sum(counts) if all(counts) else 0)


class _VertexVector(msgspec.Struct, frozen=True):
    values: list[float]
    statistics: Any = None


class _Prediction(msgspec.Struct):
    embeddings: _VertexVector


class _VertexAnswer(msgspec.Struct):
    predictions: list[_Prediction]


VERTEX: Final = ProviderDialect(
    name="vertex",
    path=vertex_path,
    write_request=write_vertex_request,
    read_reply=read_vertex_reply,
    read_events=never_streamed,
    read_failure=read_google_failure,
    url=vertex_url,
)


# --- Titan embeddings on Bedrock, provider side: `invoke` with one text.
#
# Source: docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-titan-embed-text.html (November 2026).


def titan_path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return f"/model/{quote(target.model_name, safe='')}/invoke"


def write_titan_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    embedding = embedding_of(chat)
    note_options(embedding, capabilities_of(target.facts), target, ("user", chat.user))
    wire: dict[str, Any] = {"inputText": texts_of(chat)[0]}
    if embedding.dimensions is not None and embedding.dimensions != target.facts.get("dimensions"):
        wire["dimensions"] = embedding.dimensions
    return bedrock_encode(wire)


def read_titan_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer. One that cannot be read ends with `Failed`."""
    answer = read_as(body, _TitanAnswer)
    if isinstance(answer, Failed):
        yield answer
        return
    yield from events_of([answer.embedding], read_count(answer.tokens))


class _TitanAnswer(msgspec.Struct):
    embedding: list[float]
    tokens: Any = msgspec.field(default=None, name="inputTextTokenCount")


TITAN: Final = ProviderDialect(
    name="titan",
    path=titan_path,
    write_request=write_titan_request,
    read_reply=read_titan_reply,
    read_events=never_streamed,
    read_failure=read_bedrock_failure,
)


PROVIDERS: Final = {one.name: one for one in (OPENAI, JINA, COHERE, GOOGLE, VERTEX, TITAN)}


# Providers of these chat dialects are asked for embeddings in the format of the same name, without saying so.
_SAME_NAME: Final = frozenset({"openai", "google", "cohere"})


def find_embedding_dialect(facts: Mapping[str, Any], chat_dialect: str) -> ProviderDialect | None:
    """Return the format in which an offer is asked for embeddings; None where none is stated or known."""
    name = capabilities_of(facts).dialect or (chat_dialect if chat_dialect in _SAME_NAME else None)
    return None if name is None else PROVIDERS.get(name)

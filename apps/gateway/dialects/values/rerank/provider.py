"""Rerank dialects, provider side: write requests, read rankings; and how the dialect of an offer is found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import Event, Failed
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.chat.bedrock.wire import encode as bedrock_encode
from apps.gateway.dialects.chat.bedrock.wire import read_failure as read_bedrock_failure
from apps.gateway.dialects.chat.cohere.wire import read_failure as read_cohere_failure
from apps.gateway.dialects.chat.openai.wire import encode as openai_encode
from apps.gateway.dialects.chat.openai.wire import read_failure as read_openai_failure
from apps.gateway.dialects.reading.answers import count_at, never_streamed, read_whole
from apps.gateway.dialects.values.rerank import (
    Score,
    capabilities_of,
    documents_of,
    events_of,
    options_of,
    query_of,
    reranking_of,
)

# --- Cohere reranking, provider side: `/v2/rerank`, counted in search units.
#
# Sources: docs.cohere.com/reference/rerank and the types of Cohere's SDK 7.3 (read 2026-11-23).


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return "/rerank"


def write_cohere_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    return openai_encode({"model": target.model_name, **cohere_fields_of(chat, target)})


def cohere_fields_of(chat: Chat, target: Target) -> dict[str, Any]:
    """Return the fields of the request but for the model."""
    wire: dict[str, Any] = {"query": query_of(chat), "documents": documents_of(chat)}
    if (top_n := reranking_of(chat).top_n) is not None:
        wire["top_n"] = top_n
    return wire | options_of(chat, target)


def read_cohere_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer. One that cannot be read ends with `Failed`."""
    answer = read_answer(body)
    if isinstance(answer, Failed):
        yield answer
    else:
        yield from events_of(answer.results, search_units=count_at(answer.meta, "billed_units", "search_units"))


class CohereAnswer(msgspec.Struct):
    """A ranking, and what it is charged by."""

    results: list[Score]
    meta: Any = None


def read_answer(body: bytes) -> CohereAnswer | Failed:
    """Return a whole answer, else the failure of one that cannot be read."""
    return read_whole(body, CohereAnswer, "ranking")


COHERE: Final = ProviderDialect(
    name="cohere",
    path=path,
    write_request=write_cohere_request,
    read_reply=read_cohere_reply,
    read_events=never_streamed,
    read_failure=read_cohere_failure,
)


# --- Cohere reranking, provider side, of models that are paid by the token: `/v2/rerank`, counted in tokens.
#
# Source: the types of Cohere's SDK 7.3 (read 2026-11-23).


def read_cohere_tokens_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer. One that cannot be read ends with `Failed`."""
    answer = read_answer(body)
    if isinstance(answer, Failed):
        yield answer
    else:
        yield from events_of(answer.results, tokens=count_at(answer.meta, "billed_units", "input_tokens"))


COHERE_TOKENS: Final = replace(COHERE, name="cohere_tokens", read_reply=read_cohere_tokens_reply)


# --- Cohere's reranking on Bedrock, provider side: `invoke` with Cohere's fields and a version; nothing need be
# counted.
#
# Sources: docs.aws.amazon.com/bedrock/latest/userguide/rerank-pricing.html and, for the version, what Bedrock says to
# requests of Cohere's SDK without it (read 2026-11-23).

_VERSION: Final = 2


def bedrock_path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return f"/model/{quote(target.model_name, safe='')}/invoke"


def write_bedrock_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    return bedrock_encode({**cohere_fields_of(chat, target), "api_version": _VERSION})


BEDROCK: Final = replace(
    COHERE, name="bedrock", path=bedrock_path, write_request=write_bedrock_request, read_failure=read_bedrock_failure
)


# --- Jina reranking, provider side: `/rerank`, counted in tokens.
#
# Source: api.jina.ai/redoc and jina.ai/reranker (read 2026-11-23).


def write_jina_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    # The client has the documents already.
    return openai_encode(jina_fields_of(chat, target, "top_n", return_documents=False))


def jina_fields_of(chat: Chat, target: Target, count_field: str, **fixed: bool) -> dict[str, Any]:
    """Return the fields of the request. `count_field` names the number of results, `fixed` are further fields."""
    wire = {"model": target.model_name, "query": query_of(chat), "documents": documents_of(chat), **fixed}
    if (top_n := reranking_of(chat).top_n) is not None:
        wire[count_field] = top_n
    return wire | options_of(chat, target)


class JinaAnswer(msgspec.Struct):
    """A ranking on the wire."""

    results: list[Score]
    usage: Any = None


def read_jina_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer. One that cannot be read ends with `Failed`."""
    return read_ranking(body, JinaAnswer)


def read_ranking(body: bytes, shape: type[JinaAnswer]) -> Iterator[Event]:
    """Yield the events of a whole answer of this shape."""
    answer = read_whole(body, shape, "ranking")
    if isinstance(answer, Failed):
        yield answer
        return
    yield from events_of(answer.results, tokens=count_at(answer.usage, "total_tokens"))


JINA: Final = ProviderDialect(
    name="jina",
    path=path,
    write_request=write_jina_request,
    read_reply=read_jina_reply,
    read_events=never_streamed,
    read_failure=read_openai_failure,
)


# --- Voyage reranking, provider side: `/rerank`, counted in tokens, the query's once for each document.
#
# Sources: docs.voyageai.com/docs/reranker and voyageai 0.5 (read 2026-11-23).


def write_voyage_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    return openai_encode(jina_fields_of(chat, target, "top_k", truncation=True))


class _VoyageAnswer(JinaAnswer, kw_only=True):
    results: list[Score] = msgspec.field(name="data")


def read_voyage_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer. One that cannot be read ends with `Failed`."""
    return read_ranking(body, _VoyageAnswer)


VOYAGE: Final = replace(JINA, name="voyage", write_request=write_voyage_request, read_reply=read_voyage_reply)


PROVIDERS: Final = {one.name: one for one in (COHERE, COHERE_TOKENS, BEDROCK, JINA, VOYAGE)}


# Providers of these chat dialects are asked for rankings in the format of the same name, without saying so.
_SAME_NAME: Final = frozenset({"cohere"})


def find_rerank_dialect(facts: Mapping[str, Any], chat_dialect: str) -> ProviderDialect | None:
    """Return the format in which an offer is asked to rank documents; None where none is stated or known."""
    name = capabilities_of(facts).dialect or (chat_dialect if chat_dialect in _SAME_NAME else None)
    return None if name is None else PROVIDERS.get(name)

"""Reranking: the facts that a model may state, the client side, and formats of providers.

A request to rank documents is a chat whose `reranking` says how many are wanted. The client side reads Cohere's format,
with the words of Jina and Voyage for the same. A format of a provider is a provider side for such chats; it is found by
the name that the data files state under `rerank`, else by that of the provider's chat dialect where the two go
together. docs/adding-a-provider.md explains each fact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, Literal, NamedTuple
from urllib.parse import quote

import msgspec

from apps.gateway.canonical.chat import Chat, DroppedField, Message, Target, Text
from apps.gateway.canonical.events import Event, Failed, Finished, Reply, ResultsGiven, Started, Summary, UsageReported
from apps.gateway.canonical.task_options import Ranked, Reranking
from apps.gateway.dialects import ClientErrorWriter, ProviderDialect, fact, facts_reader
from apps.gateway.dialects.chat.bedrock.wire import encode as bedrock_encode
from apps.gateway.dialects.chat.bedrock.wire import read_failure as read_bedrock_failure
from apps.gateway.dialects.chat.cohere.wire import read_failure as read_cohere_failure
from apps.gateway.dialects.chat.openai.wire import encode, write_detailed_error
from apps.gateway.dialects.chat.openai.wire import encode as openai_encode
from apps.gateway.dialects.chat.openai.wire import read_failure as read_openai_failure
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.answers import count_at, never_streamed, read_whole, unreadable_answer
from apps.gateway.dialects.reading.fields import (
    Malformed,
    Reader,
    Record,
    boolean,
    bounded_name,
    filled_string,
    integer,
    list_of,
    required,
)
from apps.gateway.dialects.reading.router_fields import take_router_fields
from apps.kernel.usage import Usage

RerankOption = Literal["max_tokens_per_doc", "truncation"]


class RerankCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a data file may state under `rerank`. A model supports only the stated options."""

    dialect: Annotated[
        Literal["cohere", "cohere_tokens", "jina", "voyage", "bedrock"] | None,
        fact(
            "the rerank dialect: `cohere`, `jina` and `voyage` (`/rerank`, each in its words), `cohere_tokens` of "
            "models that Cohere charges by the token, `bedrock` (`invoke` of Cohere's models)",
            default="`cohere` of a provider of that dialect, else the model ranks nothing",
        ),
    ] = None
    most: Annotated[int, fact("documents of one request; one with more is refused", ge=1, le=10_000)] = 1_000
    takes: Annotated[
        frozenset[RerankOption],
        fact("options that are dropped otherwise: `max_tokens_per_doc`; `truncation: false`"),
    ] = frozenset()


def capabilities_of(facts: Mapping[str, Any]) -> RerankCapabilities:
    """Return what an offer's facts say of reranking; nothing but the usual where they are silent."""
    return _read(facts) or _NOTHING_STATED


def reranking_of(chat: Chat) -> Reranking:
    """Return what a chat says of its ranking."""
    return chat.reranking or Reranking()


def query_of(chat: Chat) -> str:
    """Return what the documents are compared to."""
    return chat.messages[0].parts[0].text  # type: ignore[union-attr]  # all parts are texts


def documents_of(chat: Chat) -> list[str]:
    """Return the documents to rank."""
    return [part.text for part in chat.messages[0].parts[1:]]  # type: ignore[union-attr]  # all parts are texts


def results_of(chat: Chat) -> int:
    """Return how many documents the answer has."""
    count = len(chat.messages[0].parts) - 1
    return min(reranking_of(chat).top_n or count, count)


_read = facts_reader("rerank", RerankCapabilities)
_NOTHING_STATED = RerankCapabilities()


class Score(msgspec.Struct, frozen=True):
    """A result as all providers write it."""

    index: int
    relevance_score: float


def events_of(scores: Sequence[Score], *, tokens: int = 0, search_units: int = 0) -> Iterator[Event]:
    """Yield the events of a whole answer, the most relevant document first; 0 where the provider does not count."""
    if not scores:
        yield unreadable_answer("The provider sent an answer without a ranking")
        return
    yield Started()
    ranked = [Ranked(score.index, score.relevance_score) for score in scores]
    yield ResultsGiven(values=sorted(ranked, key=lambda one: one.score, reverse=True))
    yield Finished(reason="stop")
    usage = Usage(input=tokens, search_units=search_units)
    if usage.input or usage.search_units:
        yield UsageReported(usage=usage)


def options_of(chat: Chat, target: Target) -> dict[str, Any]:
    """Return the options that a target takes, by their canonical names; note the others as dropped."""
    reranking, capabilities = reranking_of(chat), capabilities_of(target.facts)
    wished = {
        "max_tokens_per_doc": reranking.max_tokens_per_doc,
        # Every provider truncates too long texts by default.
        "truncation": None if reranking.truncation else reranking.truncation,
    }
    options: dict[str, Any] = {}
    for name, value in wished.items():
        if value is None:
            continue
        if name in capabilities.takes:
            options[name] = value
        else:
            target.note_dropped(name, "this model's provider takes no such option")
    return options


# Errors with a `detail` as well, which Voyage's clients read.
ERRORS: Final = ClientErrorWriter(write_error=write_detailed_error)

MAX_DOCUMENTS: Final = 10_000
MAX_TOKENS_PER_DOC: Final = 1_000_000
# Fields that Voyage's clients alone send.
_VOYAGES: Final = frozenset({"top_k", "truncation"})
_TEXT: Final = "text"


def read_request(body: bytes) -> Chat:
    """Return the request to rank documents. Raises InvalidRequest naming the field."""
    return fields.read_body(body, frozenset({"documents"}), _read_body)


def write_reply(reply: Reply, summary: Summary, chat: Chat) -> bytes:
    """Return the ranking, the most relevant document first; Voyage's clients find it under `data` as well."""
    usage, wanted = summary.usage, reranking_of(chat)
    texts = documents_of(chat) if wanted.return_documents else None
    billed = {"search_units": usage.search_units} if usage.search_units else {"input_tokens": usage.prompt_tokens}
    wire: Record = {
        "id": f"rerank-{reply.log_id}",
        "object": "list",
        "model": summary.metadata.get("used_model") or reply.model,
        "results": [_result(one, None if texts is None else {_TEXT: texts[one[0]]}) for one in reply.results],
        "meta": {"api_version": {"version": "2"}, "billed_units": billed},
        "usage": {"prompt_tokens": usage.prompt_tokens, "total_tokens": usage.total_tokens},
        "metadata": summary.metadata,
    }
    if wanted.as_data:
        wire["data"] = [_result(one, None if texts is None else texts[one[0]]) for one in reply.results]
    return encode(wire)


def _result(ranked: Sequence[Any], document: Any) -> Record:
    place, score = ranked
    return {"index": place, "relevance_score": score, **({} if document is None else {"document": document})}


def _read_body(wire: Record) -> Chat:
    known, unknown = fields.read_known(wire, _BODY_READERS)
    for name in ("query", "documents"):
        if name not in known:
            raise Malformed("Required", name)
    chosen: dict[str, Any] = {"model": known["model"]} if "model" in known else {}
    take_router_fields(unknown, chosen)
    if "model" not in chosen:
        raise Malformed("Required", "model")
    documents: list[_Document] = known["documents"]
    texts = [known["query"], *(document.text for document in documents)]
    # Not sent on: an unknown field could change the cost of a ranking, or its form.
    dropped = [DroppedField(name[: fields.MAX_QUOTED_NAME], "reranking has no such option") for name in unknown]
    if {"top_n", "top_k"} <= known.keys() and known["top_n"] != known["top_k"]:
        dropped.append(DroppedField("top_k", "top_n says how many are wanted"))
    dropped_fields = [*chosen.pop("dropped_fields", ()), *dropped, *_unranked(documents)]
    return Chat(
        messages=[Message(role="user", parts=[Text(text=text) for text in texts])],
        task="rerank",
        reranking=Reranking(
            top_n=known.get("top_n") or known.get("top_k"),
            max_tokens_per_doc=known.get("max_tokens_per_doc"),
            truncation=known.get("truncation"),
            return_documents=known.get("return_documents", False),
            as_data=not _VOYAGES.isdisjoint(wire),
        ),
        dropped_fields=dropped_fields or None,
        **chosen,
    )


class _Document(NamedTuple):
    """A document: its text, and the first field beside it, which no model sees."""

    text: str
    beside: str | None = None


def _unranked(documents: Sequence[_Document]) -> list[DroppedField]:
    """Return the note on fields beside the text of documents: only the first place is named."""
    place = next((place for place, one in enumerate(documents) if one.beside is not None), None)
    if place is None:
        return []
    name = f"documents[{place}].{documents[place].beside}"
    return [DroppedField(name, "documents are ranked by their `text`")]


def _document(value: Any) -> _Document:
    if isinstance(value, str):
        return _Document(filled_string(value))
    if not isinstance(value, dict):
        raise Malformed("must be a string, or an object with a `text`")
    text = required(value, _TEXT, filled_string)
    beside = next((name for name, one in value.items() if name != _TEXT and one is not None), None)
    return _Document(text, None if beside is None else beside[: fields.MAX_QUOTED_NAME])


def _documents(value: Any) -> list[_Document]:
    documents = list_of(_document, MAX_DOCUMENTS)(value)
    if not documents:
        raise Malformed("must not be empty")
    return documents


def _rank_fields(value: Any) -> None:
    """Read the fields to rank by. Raises Malformed for any but the text."""
    if list_of(filled_string, 100)(value) != [_TEXT]:
        raise Malformed("documents are ranked by their `text`: put what matters there")


_BODY_READERS: Final[dict[str, Reader[Any]]] = {
    "model": bounded_name,
    "query": filled_string,
    "documents": _documents,
    "top_n": integer(1, MAX_DOCUMENTS),
    # The name in Voyage's format.
    "top_k": integer(1, MAX_DOCUMENTS),
    "max_tokens_per_doc": integer(1, MAX_TOKENS_PER_DOC),
    "return_documents": boolean,
    "truncation": boolean,
    "rank_fields": _rank_fields,
}


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

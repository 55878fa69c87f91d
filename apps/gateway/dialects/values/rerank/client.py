"""Cohere reranking, client side, with the words of Jina and Voyage for the same: reads requests, writes rankings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from apps.gateway.canonical.chat import Chat, DroppedField, Message, Text
from apps.gateway.canonical.events import Reply, Summary
from apps.gateway.canonical.task_options import Reranking
from apps.gateway.dialects import ClientErrorWriter
from apps.gateway.dialects.chat.openai.wire import encode, write_detailed_error
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import (
    Malformed,
    Reader,
    Record,
    boolean,
    filled_string,
    integer,
    list_of,
    required,
)
from apps.gateway.dialects.reading.router_fields import take_router_fields
from apps.gateway.dialects.values.rerank import documents_of, reranking_of

# Errors with a `detail` as well, which Voyage's clients read.
ERRORS: Final = ClientErrorWriter(write_error=write_detailed_error)

MAX_DOCUMENTS: Final = 10_000
MAX_TOKENS_PER_DOC: Final = 1_000_000
_MAX_NAME_LENGTH: Final = 512
# Fields that Voyage's clients alone send.
_VOYAGES: Final = frozenset({"top_k", "truncation"})
_TEXT: Final = "text"


def read_request(body: bytes) -> Chat:
    """Return the request to rank documents. Raises InvalidRequest naming the field."""
    return fields.read_body(body, frozenset({"documents"}), _read)


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


def _read(wire: Record) -> Chat:
    known, unknown = fields.read_known(wire, _READERS)
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


def _name(value: Any) -> str:
    if len(filled_string(value)) > _MAX_NAME_LENGTH:
        raise Malformed(f"must be at most {_MAX_NAME_LENGTH} characters long")
    return str(value)


_READERS: Final[dict[str, Reader[Any]]] = {
    "model": _name,
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

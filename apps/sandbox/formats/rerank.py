"""Reranking in Cohere's, Jina's and Voyage's words: `POST /v1/rerank` and `/v2/rerank`.

`truncation` or `top_k` make it Voyage's, `return_documents` Jina's; any other request is Cohere's.
"""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from apps.sandbox.conversation import Conversation, SandboxAnswer, Turn
from apps.sandbox.formats import WholeReplyFormat, bedrock_converse, openai_chat
from apps.sandbox.scenario import SandboxRefusal, Scenario

MAX_DOCUMENTS = 1000


def read_request(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) that names the field."""
    try:
        form = _form_of(msgspec.json.decode(body, type=dict[str, Any]))
        asked = msgspec.json.decode(body, type=form)
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(400, f"invalid request: {error}") from error
    if not 1 <= len(asked.documents) <= MAX_DOCUMENTS:
        raise SandboxRefusal(400, f"invalid request: 1 to {MAX_DOCUMENTS} documents are allowed", param="documents")
    return Conversation(
        model=asked.model,
        turns=tuple(Turn("user", text) for text in (asked.query, *asked.documents)),
        ranks=True,
        max_ranked=asked.most,
        written_as=form.__name__,
    )


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body: the ranking, in the words of who is asked."""
    ranking = [{"index": place, "relevance_score": score} for place, score in answer.ranking]
    counts = {"total_tokens": answer.usage.prompt} if answer.usage else None
    if answer.written_as == _Cohere.__name__:
        units = {"search_units": answer.search_units, "input_tokens": answer.usage.prompt} if answer.usage else None
        meta = {"api_version": {"version": "2"}, **({"billed_units": units} if units else {})}
        return msgspec.json.encode({"id": answer.id, "results": ranking, "meta": meta})
    usage = {"usage": counts} if counts else {}
    if answer.written_as == _Jina.__name__:
        return msgspec.json.encode({"model": answer.model, "object": "list", "results": ranking, **usage})
    return msgspec.json.encode({"object": "list", "data": ranking, "model": answer.model, **usage})


class _Asked(Struct, forbid_unknown_fields=True, kw_only=True):
    model: str
    query: str
    documents: list[str]


class _Cohere(_Asked, kw_only=True):
    most: int | None = msgspec.field(default=None, name="top_n")
    max_tokens_per_doc: int | None = None


class _Jina(_Asked, kw_only=True):
    return_documents: bool
    most: int | None = msgspec.field(default=None, name="top_n")


class _Voyage(_Asked, kw_only=True):
    truncation: bool = True
    most: int | None = msgspec.field(default=None, name="top_k")


def _form_of(wire: dict[str, Any]) -> type[_Cohere | _Jina | _Voyage]:
    if "truncation" in wire or "top_k" in wire:
        return _Voyage
    return _Jina if "return_documents" in wire else _Cohere


_DIRECT = WholeReplyFormat(openai_chat, "/v[12]/rerank", read_request, write_reply)


def read_bedrock(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) in Bedrock's manner."""
    try:
        asked = msgspec.json.decode(body, type=_Bedrock)
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(
            400, f"Malformed input request: {error}, please reformat your input and try again."
        ) from error
    return Conversation(
        model=unquote(path.removeprefix("/model/").removesuffix("/invoke")),
        turns=tuple(Turn("user", text) for text in (asked.query, *asked.documents)),
        ranks=True,
        max_ranked=asked.most,
    )


def write_bedrock(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body: the ranking, without a count."""
    return msgspec.json.encode(
        {"results": [{"index": place, "relevance_score": score} for place, score in answer.ranking]}
    )


class _Bedrock(Struct, forbid_unknown_fields=True):
    query: str
    documents: list[str]
    api_version: Literal[2]
    most: int | None = msgspec.field(default=None, name="top_n")
    max_tokens_per_doc: int | None = None


_BEDROCK = WholeReplyFormat(bedrock_converse, "/model/reranker[^/]*/invoke", read_bedrock, write_bedrock)


FORMATS = (_DIRECT, _BEDROCK)

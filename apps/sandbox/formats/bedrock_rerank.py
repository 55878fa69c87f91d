"""Cohere's reranking at Bedrock: `POST /model/<model>/invoke` of models whose name begins with `reranker`."""

from __future__ import annotations

from typing import Literal
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from apps.sandbox.conversation import Conversation, SandboxAnswer, Turn
from apps.sandbox.formats import WholeReplyFormat, bedrock_converse
from apps.sandbox.scenario import SandboxRefusal, Scenario


def read_request(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) in Bedrock's manner."""
    try:
        asked = msgspec.json.decode(body, type=_Request)
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


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body: the ranking, without a count."""
    return msgspec.json.encode(
        {"results": [{"index": place, "relevance_score": score} for place, score in answer.ranking]}
    )


class _Request(Struct, forbid_unknown_fields=True):
    query: str
    documents: list[str]
    api_version: Literal[2]
    most: int | None = msgspec.field(default=None, name="top_n")
    max_tokens_per_doc: int | None = None


FORMAT = WholeReplyFormat(bedrock_converse, "/model/reranker[^/]*/invoke", read_request, write_reply)

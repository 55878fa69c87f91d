"""Cohere's reranking at Bedrock: `POST /model/<model>/invoke` of models whose name begins with `reranker`."""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from apps.sandbox.conversation import Conversation, SandboxAnswer, Turn
from apps.sandbox.formats import Glance
from apps.sandbox.formats.bedrock_converse import (
    MODELS_PATH,
    STREAM_TYPE,
    find_token,
    write_error,
    write_error_event,
    write_models,
)
from apps.sandbox.refusal import SandboxRefusal
from apps.sandbox.scenario import Scenario

__all__ = [
    "MODELS_PATH",
    "PATH",
    "STREAM_TYPE",
    "find_token",
    "glance",
    "read_request",
    "write_error",
    "write_error_event",
    "write_events",
    "write_models",
    "write_reply",
]

PATH = re.compile("/model/reranker[^/]*/invoke")


def glance(path: str, body: bytes) -> Glance | None:
    """Return None: no benchmark asks for rankings."""
    return None


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
        most_ranked=asked.most,
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


def write_events(answer: SandboxAnswer, scenario: Scenario, *, wants_usage: bool) -> list[bytes]:
    """Return the whole answer as the one event of a stream; nobody can ask for a stream, though."""
    return [b"data: " + write_reply(answer, scenario) + b"\n\n"]

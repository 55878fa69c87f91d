"""Cohere's embeddings: `POST /v2/embed`."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from apps.sandbox.conversation import Conversation, SandboxAnswer, Turn
from apps.sandbox.formats import WholeReplyFormat, cohere_chat
from apps.sandbox.generated_media import USUAL_LENGTH
from apps.sandbox.scenario import SandboxRefusal, Scenario

MAX_INPUTS = 96


def read_request(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) in Cohere's manner."""
    try:
        asked = msgspec.json.decode(body, type=_Request)
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(400, f"invalid request: {error}") from error
    if not 1 <= len(asked.texts) <= MAX_INPUTS:
        raise SandboxRefusal(400, f"invalid request: 1 to {MAX_INPUTS} texts are allowed")
    return Conversation(
        model=asked.model,
        turns=tuple(Turn("user", text) for text in asked.texts),
        vector_length=asked.output_dimension or USUAL_LENGTH,
    )


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body: a vector for each text."""
    meta: dict[str, Any] = {"api_version": {"version": "2"}}
    if answer.usage:
        meta["billed_units"] = {"input_tokens": answer.usage.prompt}
    return msgspec.json.encode({"id": answer.id, "embeddings": {"float": answer.vectors}, "texts": [], "meta": meta})


class _Request(Struct, forbid_unknown_fields=True):
    model: str
    texts: list[str]
    input_type: Literal["search_query", "search_document", "classification", "clustering"]
    embedding_types: list[Literal["float"]]
    truncate: Literal["NONE", "START", "END"] = "END"
    output_dimension: int | None = None


FORMAT = WholeReplyFormat(cohere_chat, "/v2/embed", read_request, write_reply)

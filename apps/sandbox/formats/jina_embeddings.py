"""Jina's embeddings: `POST /jina/v1/embeddings`, as OpenAI's path is the same below another address."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from apps.sandbox.conversation import Conversation, Turn
from apps.sandbox.formats import WholeReplyFormat, openai_chat
from apps.sandbox.formats.openai_embeddings import write_reply
from apps.sandbox.generated_media import USUAL_LENGTH
from apps.sandbox.scenario import SandboxRefusal

Task = Literal[
    "retrieval.query",
    "retrieval.passage",
    "text-matching",
    "classification",
    "clustering",
    "separation",
    "code.query",
    "code.passage",
]


class _Request(Struct, forbid_unknown_fields=True):
    model: str
    input: Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(min_length=1, max_length=2048)]
    task: Task | None = None
    dimensions: Annotated[int, Meta(ge=1, le=4096)] | None = None
    embedding_type: Literal["float", "base64"] = "float"
    normalized: bool = True
    truncate: bool = False


def read_request(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (422) in Jina's manner."""
    try:
        asked = msgspec.json.decode(body, type=_Request)
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(422, f"[VALIDATION_ERROR] {error}") from error
    return Conversation(
        model=asked.model,
        turns=tuple(Turn("user", text) for text in asked.input),
        vector_length=asked.dimensions or USUAL_LENGTH,
        vectors_in_base64=asked.embedding_type == "base64",
    )


FORMAT = WholeReplyFormat(openai_chat, "/jina/v1/embeddings", read_request, write_reply)

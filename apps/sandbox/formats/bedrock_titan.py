"""Titan embeddings at Bedrock: `POST /model/<model>/invoke`, one text a call."""

from __future__ import annotations

from urllib.parse import unquote

import msgspec
from msgspec import Struct

from apps.sandbox.conversation import Conversation, SandboxAnswer, Turn
from apps.sandbox.formats import WholeReplyFormat, bedrock_converse
from apps.sandbox.generated_media import USUAL_LENGTH
from apps.sandbox.scenario import SandboxRefusal, Scenario


def read_request(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) in Bedrock's manner."""
    try:
        asked = msgspec.json.decode(body, type=_Request)
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(
            400, f"Malformed input request: {error}, please reformat your input and try again."
        ) from error
    model = unquote(path.removeprefix("/model/").removesuffix("/invoke"))
    return Conversation(model=model, turns=(Turn("user", asked.text),), vector_length=asked.dimensions or USUAL_LENGTH)


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body: the vector of the text."""
    count = {"inputTextTokenCount": answer.usage.prompt} if answer.usage else {}
    return msgspec.json.encode({"embedding": answer.vectors[0] if answer.vectors else [], **count})


class _Request(Struct, forbid_unknown_fields=True):
    text: str = msgspec.field(name="inputText")
    dimensions: int | None = None
    normalize: bool = True


FORMAT = WholeReplyFormat(bedrock_converse, "/model/(?!reranker).+/invoke", read_request, write_reply)

"""Google's embeddings at AI Studio: `POST …/models/<model>:batchEmbedContents`; nothing is counted."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from apps.sandbox.conversation import Conversation, SandboxAnswer, Turn
from apps.sandbox.formats import WholeReplyFormat, google_generate
from apps.sandbox.generated_media import USUAL_LENGTH
from apps.sandbox.scenario import SandboxRefusal, Scenario

MAX_INPUTS = 100


def read_request(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) in Google's manner."""
    try:
        asked = msgspec.json.decode(body, type=_Requests).requests
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(400, f"Invalid JSON payload received. {error}") from error
    name = path.removeprefix("/v1beta/").rpartition(":")[0]
    if not 1 <= len(asked) <= MAX_INPUTS:
        raise SandboxRefusal(
            400, f"* BatchEmbedContentsRequest.requests: 1 to {MAX_INPUTS} requests can be in one batch"
        )
    if any(one.model != name for one in asked):
        raise SandboxRefusal(400, "model: must be the one in the path")
    return Conversation(
        model=name.removeprefix("models/"),
        turns=tuple(Turn("user", "".join(part.text for part in one.content.parts)) for one in asked),
        vector_length=asked[0].length or USUAL_LENGTH,
    )


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body: a vector for each request."""
    return msgspec.json.encode({"embeddings": [{"values": vector} for vector in answer.vectors]})


class _Part(Struct, forbid_unknown_fields=True):
    text: str


class _Content(Struct, forbid_unknown_fields=True):
    parts: list[_Part]


class _Request(Struct, forbid_unknown_fields=True):
    model: str
    content: _Content
    task: str = msgspec.field(default="", name="taskType")
    title: str = ""
    length: int | None = msgspec.field(default=None, name="outputDimensionality")


class _Requests(Struct, forbid_unknown_fields=True):
    requests: list[_Request]


FORMAT = WholeReplyFormat(google_generate, "/v1beta/models/[^/]+:batchEmbedContents", read_request, write_reply)

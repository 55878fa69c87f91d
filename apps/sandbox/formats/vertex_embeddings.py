"""Google Cloud's embeddings: `POST …/publishers/google/models/<model>:predict`, counted input by input."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from apps.sandbox.conversation import Conversation, SandboxAnswer, Turn
from apps.sandbox.formats import WholeReplyFormat, google_generate
from apps.sandbox.generated_media import USUAL_LENGTH
from apps.sandbox.scenario import SandboxRefusal, Scenario

MAX_INPUTS = 250


def read_request(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) in Google's manner."""
    try:
        asked = msgspec.json.decode(body, type=_Request)
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(400, f"Invalid JSON payload received. {error}") from error
    if not 1 <= len(asked.instances) <= MAX_INPUTS:
        raise SandboxRefusal(400, f"The batch size should be 1 to {MAX_INPUTS}")
    return Conversation(
        model=path.rpartition("/")[2].rpartition(":")[0],
        turns=tuple(Turn("user", one.content) for one in asked.instances),
        vector_length=asked.parameters.length or USUAL_LENGTH,
    )


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body: a vector for each instance, and its count."""
    predictions = [
        {"embeddings": {"values": vector, "statistics": {"truncated": False, "token_count": count}}}
        for vector, count in zip(answer.vectors, answer.tokens_of_inputs, strict=True)
    ]
    return msgspec.json.encode({"predictions": predictions})


class _Instance(Struct, forbid_unknown_fields=True):
    content: str
    task_type: str = ""
    title: str = ""


class _Parameters(Struct, frozen=True, forbid_unknown_fields=True):
    cut: bool = msgspec.field(default=True, name="autoTruncate")
    length: int | None = msgspec.field(default=None, name="outputDimensionality")


class _Request(Struct, forbid_unknown_fields=True):
    instances: list[_Instance]
    parameters: _Parameters = _Parameters()


PATH = "/v1/projects/[^/]+/locations/[^/]+/publishers/google/models/[^/]+:predict"
FORMAT = WholeReplyFormat(google_generate, PATH, read_request, write_reply)

"""OpenAI's embeddings: `POST /v1/embeddings`; answers are whole."""
# alone: a format, found by the folder that it is in

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from apps.sandbox.conversation import Conversation, SandboxAnswer, Turn
from apps.sandbox.formats import WholeReplyFormat, openai_chat
from apps.sandbox.generated_media import USUAL_LENGTH, in_base64
from apps.sandbox.scenario import SandboxRefusal, Scenario

MAX_INPUTS = 2048


def read_request(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) that names the field, as OpenAI does."""
    try:
        asked = msgspec.json.decode(body, type=_Request)
    except msgspec.ValidationError as error:
        raise SandboxRefusal(400, f"Invalid request: {error}") from error
    except msgspec.DecodeError as error:
        raise SandboxRefusal(400, "We could not parse the JSON body of your request.") from error
    inputs: list[Any] = asked.input if isinstance(asked.input, list) else [asked.input]
    if inputs and isinstance(inputs[0], int):
        inputs = [inputs]
    if not 1 <= len(inputs) <= MAX_INPUTS or not all(inputs):
        raise SandboxRefusal(400, f"'$.input' is invalid: 1 to {MAX_INPUTS} inputs, none empty", param="input")
    # A token of an array counts as one: it is four bytes here.
    texts = [one if isinstance(one, str) else "".join(f"{token:4}" for token in one) for one in inputs]
    return Conversation(
        model=asked.model,
        turns=tuple(Turn("user", text) for text in texts),
        vector_length=asked.dimensions or (1536 if asked.model == "embedder-fast" else USUAL_LENGTH),
        vectors_in_base64=asked.encoding_format == "base64",
    )


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body: a vector for each input."""
    data = [
        {"object": "embedding", "index": index, "embedding": in_base64(vector) if answer.vectors_in_base64 else vector}
        for index, vector in enumerate(answer.vectors)
    ]
    reply: dict[str, Any] = {"object": "list", "data": data, "model": answer.model}
    if answer.usage:
        reply["usage"] = {"prompt_tokens": answer.usage.prompt, "total_tokens": answer.usage.prompt}
    return msgspec.json.encode(reply)


class _Request(Struct, forbid_unknown_fields=True):
    model: str
    input: str | list[str | int | list[int]]
    dimensions: Annotated[int, Meta(ge=1, le=4096)] | None = None
    encoding_format: Literal["float", "base64"] = "float"
    user: str = ""
    input_type: str = ""


FORMAT = WholeReplyFormat(openai_chat, "/v1/embeddings", read_request, write_reply)

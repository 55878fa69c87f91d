"""Moderation: `POST /v1/moderations`, of `moderator` as OpenAI has it, of `moderator-mistral` as Mistral does."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from apps.sandbox.conversation import Conversation, SandboxAnswer, Turn
from apps.sandbox.formats import WholeReplyFormat, openai_chat
from apps.sandbox.scenario import SandboxRefusal, Scenario

MAX_INPUTS = 8
MISTRAL: Final = "moderator-mistral"
OPENAI_CATEGORIES: Final = (
    *("harassment", "harassment/threatening", "hate", "hate/threatening", "illicit", "illicit/violent", "self-harm"),
    *("self-harm/intent", "self-harm/instructions", "sexual", "sexual/minors", "violence", "violence/graphic"),
)
MISTRAL_CATEGORIES: Final = (
    *("sexual", "hate_and_discrimination", "violence_and_threats", "dangerous", "criminal", "selfharm", "health"),
    *("financial", "law", "pii", "jailbreaking"),
)
# OpenAI judges pictures by these.
_OF_PICTURES: Final = frozenset(
    {"self-harm", "self-harm/intent", "self-harm/instructions", "sexual", "violence", "violence/graphic"}
)
_THRESHOLD: Final = 0.5


def read_request(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) that names the field."""
    try:
        asked = msgspec.json.decode(body, type=_Request)
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(400, f"Invalid request: {error}") from error
    inputs: list[Any] = asked.input if isinstance(asked.input, list) else [asked.input]
    is_mistral = asked.model.partition(":")[0] == MISTRAL
    if not 1 <= len(inputs) <= MAX_INPUTS or not all(inputs):
        raise SandboxRefusal(400, f"'$.input' is invalid: 1 to {MAX_INPUTS} inputs, none empty", param="input")
    texts = [isinstance(one, str) for one in inputs]
    if any(texts) and not all(texts):
        raise SandboxRefusal(400, "'$.input' is invalid: texts, or the parts of one input", param="input")
    if all(texts):
        turns = tuple(Turn("user", text) for text in inputs)
    elif is_mistral:
        raise SandboxRefusal(400, "Invalid request: input must be texts", param="input")
    else:
        pictures = sum(isinstance(part, _Picture) for part in inputs)
        text = " ".join(part.text for part in inputs if isinstance(part, _Text))
        turns = (Turn("user", text, attachments=(("image", pictures),) if pictures else ()),)
    categories = MISTRAL_CATEGORIES if is_mistral else OPENAI_CATEGORIES
    return Conversation(model=asked.model, turns=turns, categories=categories)


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body: a judgement of each input; Mistral alone counts tokens."""
    if answer.model.partition(":")[0] == MISTRAL:
        results = [_result(scores) for scores in answer.judgements]
        usage = {"usage": {"prompt_tokens": answer.usage.prompt}} if answer.usage else {}
        return msgspec.json.encode({"id": answer.id, "model": answer.model, "results": results, **usage})
    judged = [
        {
            "flagged": any(score > _THRESHOLD for score in scores.values()),
            **_result(scores),
            "category_applied_input_types": {
                name: ["text", "image"] if answer.judges_pictures and name in _OF_PICTURES else ["text"]
                for name in scores
            },
        }
        for scores in answer.judgements
    ]
    return msgspec.json.encode({"id": f"modr-{answer.id}", "model": answer.model, "results": judged})


def _result(scores: dict[str, float]) -> dict[str, Any]:
    return {"categories": {name: score > _THRESHOLD for name, score in scores.items()}, "category_scores": scores}


class _Address(Struct, forbid_unknown_fields=True):
    url: str


class _Text(Struct, forbid_unknown_fields=True, tag="text"):
    text: str


class _Picture(Struct, forbid_unknown_fields=True, tag="image_url"):
    image_url: _Address


class _Request(Struct, forbid_unknown_fields=True):
    model: str
    input: str | list[str | _Text | _Picture]


FORMATS = (WholeReplyFormat(openai_chat, "/v1/moderations", read_request, write_reply),)

"""Writes pictures as OpenAI does. Must never know how an answer is spoilt on its way."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgspec

from apps.sandbox.conversation import SandboxAnswer, SandboxUsage
from apps.sandbox.formats.openai_chat.writing import CREATED
from apps.sandbox.scenario import Scenario


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body: a picture for each choice, with the words that it is of."""
    data = [
        {"b64_json": b64encode(picture).decode(), "revised_prompt": choice.text}
        for choice in answer.choices
        for picture in choice.pictures
    ]
    reply: dict[str, Any] = {"created": CREATED, "data": data}
    if data:
        reply |= {"background": "opaque", "output_format": "png", "quality": "medium", "size": answer.picture}
    if answer.usage:
        reply["usage"] = _usage(answer.usage)
    return msgspec.json.encode(reply | ({"x_sandbox": "a field that nobody knows"} if scenario.extra else {}))


def write_events(answer: SandboxAnswer, scenario: Scenario, *, wants_usage: bool) -> list[bytes]:
    """Return the whole answer as the one event of a stream; nobody can ask for a stream, though."""
    return [b"data: " + write_reply(answer, scenario) + b"\n\n"]


def _usage(usage: SandboxUsage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"text_tokens": usage.prompt - usage.attached, "image_tokens": usage.attached},
        "output_tokens": usage.completion,
        "output_tokens_details": {"text_tokens": 0, "image_tokens": usage.completion},
        "total_tokens": usage.prompt + usage.completion,
    }

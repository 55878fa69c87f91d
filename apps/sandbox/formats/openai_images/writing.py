"""Writes pictures as OpenAI does."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from typing import Any

import msgspec

from apps.sandbox.conversation import SandboxAnswer, SandboxUsage
from apps.sandbox.formats.openai_chat.writing import CREATED
from apps.sandbox.image_generator import paint
from apps.sandbox.scenario import Scenario

TOKENS_OF_PARTIAL_IMAGE = 100


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
    return msgspec.json.encode(reply | ({"x_sandbox": "an unknown field"} if scenario.extra else {}))


def write_events(answer: SandboxAnswer, scenario: Scenario, *, wants_usage: bool) -> list[bytes]:
    """Return an event for each picture, its unfinished ones ahead of it. Those cost 100 tokens each."""
    about = {
        "created_at": CREATED,
        "background": "opaque",
        "output_format": "png",
        "quality": "medium",
        "size": answer.picture,
    }
    events: list[bytes] = []
    pictures = [picture for choice in answer.choices for picture in choice.pictures]
    for place, picture in enumerate(pictures):
        for index in range(answer.partial_images):
            unfinished = paint("8x8", f"{answer.id}/{place}/{index}")
            fields = {"b64_json": b64encode(unfinished).decode(), "partial_image_index": index, **about}
            events.append(_event("image_generation.partial_image", fields))
        whole: dict[str, Any] = {"b64_json": b64encode(picture).decode(), **about}
        if answer.usage and place == len(pictures) - 1:
            more = TOKENS_OF_PARTIAL_IMAGE * answer.partial_images * len(pictures)
            whole["usage"] = _usage(replace(answer.usage, completion=answer.usage.completion + more))
        events.append(_event("image_generation.completed", whole))
    return events


def _event(kind: str, fields: dict[str, Any]) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + msgspec.json.encode({"type": kind, **fields}) + b"\n\n"


def _usage(usage: SandboxUsage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"text_tokens": usage.prompt - usage.attached, "image_tokens": usage.attached},
        "output_tokens": usage.completion,
        "output_tokens_details": {"text_tokens": 0, "image_tokens": usage.completion},
        "total_tokens": usage.prompt + usage.completion,
    }

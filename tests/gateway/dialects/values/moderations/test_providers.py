"""Provider sides of moderation: requests to each, and the reading of its answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.gateway.canonical.chat import Chat, Image, Message, Target, Text
from apps.gateway.canonical.events import Failed, Finished, ResultsGiven, Started, UsageReported
from apps.gateway.canonical.task_options import Moderation
from apps.gateway.dialects.values.moderations import PROVIDERS
from apps.kernel.usage import Usage

TEXTS = [Text(text="a"), Text(text="b")]
PIXEL = "data:image/png;base64,AA=="


def written(name: str, parts: list[Any], *, together: bool) -> tuple[str, Any]:
    """Return the path and the body."""
    half = PROVIDERS[name]
    message = Message(role="user", parts=parts)
    chat = Chat(model="m", messages=[message], task="moderations", moderation=Moderation(together=together))
    target = Target(model_name="m:0", facts={})
    return half.path(chat, target), json.loads(half.write_request(chat, target))


def read(name: str, answer: Any) -> list[Any]:
    """Return the events of an answer."""
    half = PROVIDERS[name]
    return list(half.read_reply(json.dumps(answer).encode() if not isinstance(answer, bytes) else answer))


def test_what_each_is_sent() -> None:
    for name in ("openai", "mistral"):
        assert written(name, TEXTS, together=False) == ("/moderations", {"model": "m:0", "input": ["a", "b"]})
    assert written("mistral", TEXTS, together=True)[1]["input"] == ["a\nb"]
    assert written("openai", [*TEXTS[:1], Image(url=PIXEL)], together=True)[1]["input"] == [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": PIXEL}},
    ]


def test_openais_answer_keeps_what_was_judged() -> None:
    wire = {
        "flagged": True,
        "categories": {"hate": True, "illicit": None},
        "category_scores": {"hate": 0.5, "illicit": None},
    }
    judged: dict[str, Any] = {"flagged": True, "categories": {"hate": True}, "category_scores": {"hate": 0.5}}
    applied = {"category_applied_input_types": {"hate": ["image"]}}
    assert read("openai", {"results": [wire, {**wire, **applied}], "usage": {"prompt_tokens": 7}}) == [
        Started(),
        ResultsGiven(values=[{**judged, "category_applied_input_types": {"hate": ["text"]}}, {**judged, **applied}]),
        Finished(reason="stop"),
        UsageReported(usage=Usage(input=7)),
    ]


def test_mistrals_answer_has_openais_name_of_the_category_that_is_the_same() -> None:
    wire = {
        "categories": {"selfharm": True, "hate_and_discrimination": False},
        "category_scores": {"selfharm": 0.75, "hate_and_discrimination": 0.25},
    }
    [_, given, _] = read("mistral", {"id": "1", "model": "m", "results": [wire]})
    assert given == ResultsGiven(
        values=[
            {
                "flagged": True,
                "categories": {"selfharm": True, "hate_and_discrimination": False, "self-harm": True},
                "category_scores": {"selfharm": 0.75, "hate_and_discrimination": 0.25, "self-harm": 0.75},
                "category_applied_input_types": {
                    "selfharm": ["text"],
                    "hate_and_discrimination": ["text"],
                    "self-harm": ["text"],
                },
            }
        ]
    )


@pytest.mark.parametrize("name", ["openai", "mistral"])
@pytest.mark.parametrize(
    "answer",
    [
        *(b"", b"<html>", {}, [], {"results": []}, {"results": [{}]}, {"results": {}}),
        {"results": [{"flagged": True, "categories": {"hate": "yes"}, "category_scores": {}}]},
        {"results": [{"flagged": True, "categories": {"hate": True}, "category_scores": {"hate": "0.5"}}]},
    ],
)
def test_an_answer_without_judgements_is_a_failure(name: str, answer: Any) -> None:
    (only,) = read(name, answer)
    assert isinstance(only, Failed)
    assert only.error.status == 502

"""Items that change an answer's configuration in the middle of a conversation: kept, and applied elsewhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects.chat import anthropic, openai, responses
from apps.kernel.errors import InvalidRequest

HI, MORE = {"role": "user", "content": "Hi"}, {"role": "user", "content": "More"}
FACTS = {"reasoning_efforts": ["low", "medium", "high"]}


def update(**fields: Any) -> dict[str, Any]:
    """Return an update."""
    return {"type": "configuration_update", **fields}


def asked(*items: dict[str, Any], **fields: Any) -> Chat:
    """Return the chat of a request."""
    return responses.read_request(json.dumps({"model": "m", "input": list(items), **fields}).encode())


def test_a_provider_of_the_format_gets_the_item_and_the_requests_own_effort() -> None:
    high = update(reasoning={"effort": "high"})
    chat = asked(HI, high, MORE, reasoning={"effort": "low"})
    wire = json.loads(responses.write_request(chat, Target(model_name="m", facts=FACTS)))
    assert [item.get("type", item.get("role")) for item in wire["input"]] == ["user", "configuration_update", "user"]
    assert wire["input"][1] == high
    assert wire["reasoning"]["effort"] == "low"


def test_the_latest_effort_is_the_one_that_other_formats_are_told() -> None:
    items = (HI, update(reasoning={"effort": "high"}), MORE, update(reasoning={"effort": "medium"}), update(), MORE)
    chat = asked(*items, reasoning={"effort": "low"})
    target = Target(model_name="m", facts=FACTS)
    wire = json.loads(openai.write_request(chat, target))
    assert wire["reasoning_effort"] == "medium"
    assert wire["messages"] == [HI, MORE, MORE]
    assert target.dropped_fields == []
    assert json.loads(anthropic.write_request(chat, target))["output_config"] == {"effort": "medium"}


def test_an_update_of_the_answers_form_is_refused_elsewhere_and_an_unknown_effort_everywhere() -> None:
    chat = asked(HI, update(text={"format": {"type": "text"}}), MORE)
    with pytest.raises(InvalidRequest) as refusal:
        openai.write_request(chat, Target(model_name="m", facts={}))
    assert (refusal.value.code, refusal.value.message) == (
        "unsupported_feature",
        "A message holds content that this model's provider has no form for: configuration_update",
    )
    with pytest.raises(InvalidRequest) as malformed:
        asked(HI, update(reasoning={"effort": "huge"}))
    assert malformed.value.param == "input[1].reasoning.effort"

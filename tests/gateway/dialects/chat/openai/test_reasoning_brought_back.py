"""Reasoning and signatures of earlier answers: each provider of the format gets them back as it demands them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.catalog import catalog_cache
from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects.chat import anthropic, google, openai, responses
from apps.gateway.routing.candidates import _CUSTOM_FACTS, _facts_at

OWN: dict[str, Any] = dict(_CUSTOM_FACTS)
ASKED = {"role": "user", "content": "Rain?"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "rain"}
SIGNED = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
# OpenAI and its like hide what their models think in this format; others have no field for it.
SHOW_NO_THINKING = {
    "openai": "OpenAI shows no reasoning in its chat format",
    "inception": "its answers bring a summary of the reasoning alone, which it does not take back",
    "perplexity": "the reasoning is a part of the text",
    "minimax": "the reasoning comes back block by block, as `reasoning_details`",
}


def of_chat(**answer: Any) -> Chat:
    messages = [ASKED, {"role": "assistant", "content": "", "tool_calls": [CALL], **answer}, RESULT]
    return openai.read_request(json.dumps({"model": "m", "messages": messages}).encode())


def of_messages(*blocks: dict[str, Any], call_id: str = "call_1") -> Chat:
    use = {"type": "tool_use", "id": call_id, "name": "look", "input": {}}
    messages = [
        ASKED,
        {"role": "assistant", "content": [*blocks, use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": "rain"}]},
    ]
    return anthropic.read_request(json.dumps({"model": "m", "max_tokens": 9, "messages": messages}).encode())


def of_responses() -> Chat:
    items = [
        ASKED,
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "rain"},
    ]
    return responses.read_request(json.dumps({"model": "m", "input": items}).encode())


def of_gemini() -> Chat:
    contents = [
        {"role": "user", "parts": [{"text": "Rain?"}]},
        {"role": "model", "parts": [{"functionCall": {"id": "call_1", "name": "look", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"id": "call_1", "name": "look", "response": {}}}]},
    ]
    return google.read_request(json.dumps({"contents": contents}).encode())


def answer_sent(chat: Chat, **facts: Any) -> dict[str, Any]:
    """Return the model's earlier answer as a provider with these facts gets it."""
    target = Target(model_name="fox-1", facts=facts)
    wire: dict[str, Any] = json.loads(openai.write_request(chat, target))["messages"][1]
    assert target.dropped_fields == []
    return wire


@pytest.mark.parametrize("chat", [of_chat(), of_messages(), of_responses(), of_gemini()])
@pytest.mark.parametrize("required", ["calls", "answers"])
def test_reasoning_that_the_client_did_not_keep_is_a_blank_where_it_is_demanded(chat: Chat, required: str) -> None:
    needs = {"reasoning_field": "reasoning_content", "reasoning_required": required}
    assert answer_sent(chat, **needs)["reasoning_content"] == " "


def test_an_empty_reasoning_of_the_client_stays_as_it_is() -> None:
    needs = {"reasoning_field": "reasoning_content", "reasoning_required": "answers"}
    assert answer_sent(of_chat(reasoning_content=""), **needs)["reasoning_content"] == ""


def test_reasoning_that_the_client_kept_is_what_is_brought_back() -> None:
    needs = {"reasoning_field": "reasoning_content", "reasoning_required": "answers"}
    kept = of_messages({"type": "thinking", "thinking": "Look.", "signature": ""})
    for chat in (of_chat(reasoning="Look."), of_chat(reasoning_content="Look."), kept):
        assert answer_sent(chat, **needs)["reasoning_content"] == "Look."


def test_an_answer_without_calls_needs_reasoning_only_where_each_answer_does() -> None:
    said = [ASKED, {"role": "assistant", "content": "Rain."}, ASKED]
    chat = openai.read_request(json.dumps({"model": "m", "messages": said}).encode())
    assert answer_sent(chat, reasoning_field="reasoning_content", reasoning_required="calls") == said[1]
    needs = {"reasoning_field": "reasoning_content", "reasoning_required": "answers"}
    assert answer_sent(chat, **needs) == {**said[1], "reasoning_content": " "}


def test_what_a_chat_client_brings_back_reaches_a_provider_of_its_own_untouched() -> None:
    brought = {"reasoning_content": "Look.", "tool_calls": [{**CALL, **SIGNED}]}
    assert answer_sent(of_chat(**brought), **OWN) == {"role": "assistant", "content": "", **brought}
    both = {"reasoning": "Look.", "reasoning_content": "Look!"}
    assert answer_sent(of_chat(**both), **OWN) == {"role": "assistant", "content": "", "tool_calls": [CALL], **both}


def test_reasoning_under_the_name_of_the_gateways_answers_has_the_other_name_too() -> None:
    wire = answer_sent(of_chat(reasoning="Look."), **OWN)
    assert (wire["reasoning"], wire["reasoning_content"]) == ("Look.", "Look.")


def test_thinking_of_other_formats_reaches_a_provider_of_ones_own() -> None:
    plain = of_messages({"type": "thinking", "thinking": "Look.", "signature": ""})
    assert answer_sent(plain, **OWN)["reasoning_content"] == "Look."
    assert "reasoning_content" not in answer_sent(of_messages(), **OWN)


def test_a_signature_of_googles_comes_back_by_the_id_of_its_call() -> None:
    """A client of another format keeps nothing but the id of a call."""
    reply = {
        "id": "r",
        "choices": [{"index": 0, "message": {"role": "assistant", "tool_calls": [{**CALL, **SIGNED}]}}],
    }
    started = next(event for event in openai.read_reply(json.dumps(reply).encode()) if hasattr(event, "name"))
    assert started.id == "call_1__sealed__YzJsbg"
    for chat in (of_messages(call_id=started.id), of_chat(tool_calls=[{**CALL, "id": started.id}])):
        wire = json.loads(openai.write_request(chat, Target(model_name="fox-1", facts=OWN)))["messages"]
        assert wire[1]["tool_calls"] == [{**CALL, **SIGNED}]
        assert wire[2]["tool_call_id"] == "call_1"
    unaware = json.loads(openai.write_request(of_messages(call_id=started.id), Target(model_name="fox-1", facts={})))
    assert unaware["messages"][1]["tool_calls"] == [CALL]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("base_url", "demanded"),
    [
        ("https://api.deepseek.com/v1", {"reasoning_content": " "}),
        ("https://API.moonshot.ai/v1", {"reasoning_content": " "}),
        ("https://deepseek.example/v1", {}),
        ("https://api.openai.com/v1", {}),
        ("nonsense", {}),
    ],
)
def test_a_provider_of_ones_own_demands_what_the_catalogs_provider_at_its_address_demands(
    base_url: str, demanded: dict[str, str]
) -> None:
    facts = _facts_at(base_url, catalog_cache.current())
    wire = answer_sent(of_messages(), **facts)
    assert {name: value for name, value in wire.items() if name.startswith("reasoning")} == demanded
    kept = answer_sent(of_chat(reasoning="Look."), **facts)
    assert kept["reasoning_content"] == "Look."


@pytest.mark.django_db
def test_each_offer_that_thinks_says_how_its_reasoning_comes_back() -> None:
    """An offer that is silent about it would lose the reasoning of each earlier turn."""
    seen, silent = 0, []
    for model in catalog_cache.current().models.values():
        for offer in model.offers:
            if not offer.reasoning or model.mode != "chat" or offer.dialect not in ("openai", "vertex_openai"):
                continue
            seen += 1
            if "reasoning_field" in offer.facts or offer.provider.id in SHOW_NO_THINKING:
                continue
            if offer.provider.id == "azure" and model.id.startswith(("gpt-", "o1", "o3", "o4")):
                # OpenAI's models, which show none there either.
                continue
            silent.append(f"{offer.provider.id}/{model.id}")
    assert silent == []
    assert seen > 500

"""Features that only Google has: a search beside functions goes as sent, and forms of its own go nowhere else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects.chat import anthropic, google, openai
from apps.kernel.errors import InvalidRequest

SEARCH: dict[str, Any] = {"googleSearch": {}}
FUNCTION: dict[str, Any] = {"functionDeclarations": [{"name": "find"}]}
TOLD = {"includeServerSideToolInvocations": True}


def asked(**fields: Any) -> Chat:
    """Return the chat of a request."""
    body = {"contents": [{"role": "user", "parts": [{"text": "?"}]}], **fields}
    return google.read_request(json.dumps(body).encode())


@pytest.mark.parametrize("rewritten", [False, True])
@pytest.mark.parametrize("config", [TOLD, {}])
def test_a_search_beside_functions_is_sent_as_googles_client_says_it(config: dict[str, Any], rewritten: bool) -> None:
    chat = asked(tools=[SEARCH, FUNCTION], toolConfig=config)
    if rewritten:
        chat.source = None
    wire = json.loads(google.write_request(chat, Target(model_name="m", facts={})))
    assert sorted(key for tool in wire["tools"] for key in tool) == ["functionDeclarations", "googleSearch"]
    assert wire.get("toolConfig", {}) == config


def test_a_search_beside_functions_is_for_models_that_take_both_where_another_client_asks() -> None:
    tools = [{"type": "web_search"}, {"type": "function", "function": {"name": "find"}}]
    body = {"model": "m", "messages": [{"role": "user", "content": "?"}], "tools": tools}
    chat = openai.read_request(json.dumps(body).encode())
    with pytest.raises(InvalidRequest) as refusal:
        google.write_request(chat, Target(model_name="m", facts={}))
    assert (refusal.value.code, refusal.value.param) == ("unsupported_feature", "tools")
    taken = google.write_request(chat, Target(model_name="m", facts={"takes": ["search_with_tools"]}))
    assert json.loads(taken)["toolConfig"] == TOLD


@pytest.mark.parametrize("written", [anthropic, openai])
def test_an_answer_of_a_form_that_only_google_has_is_refused_elsewhere(written: Any) -> None:
    form = {"responseMimeType": "text/x.enum", "responseSchema": {"type": "STRING", "enum": ["A", "B"]}}
    chat = asked(generationConfig={**form, "maxOutputTokens": 100})
    assert json.loads(google.write_request(chat, Target(model_name="m", facts={})))["generationConfig"] == {
        **form,
        "maxOutputTokens": 100,
    }
    with pytest.raises(InvalidRequest) as refusal:
        written.write_request(chat, Target(model_name="m", facts={}))
    assert (refusal.value.code, refusal.value.param, refusal.value.message) == (
        "unsupported_feature",
        "generationConfig.responseMimeType",
        "Answers of the type text/x.enum are not available from this model's provider",
    )

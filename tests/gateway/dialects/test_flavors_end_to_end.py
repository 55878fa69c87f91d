"""A provider of OpenAI's format with Mistral's facts, over real HTTP: thinking in the content, ids of nine letters."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import msgspec
import pytest

from apps.catalog.files import read_files
from apps.gateway.dialects.adapting.thinking import join_signature
from tests.support.providers_of_every_format import add_provider, offer_models
from tests.support.upstream import Caller, chunks_of

WEATHER = {"type": "function", "function": {"name": "weather"}}
QUESTION = {"role": "user", "content": "Weather?"}


@pytest.fixture
def mistral(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> Caller:
    """The caller, in front of a provider `breeze` with the facts of the catalog's Mistral and the sandbox's models."""
    [file] = [provider for provider in read_files().providers if provider.id == "mistral"]
    add_provider(caller, monkeypatch, "breeze", file.dialect, auth=file.auth, facts=msgspec.to_builtins(file.facts))
    offer_models("breeze")
    return caller


@pytest.mark.parametrize("stream", [False, True])
def test_thinking_in_the_content_comes_back_as_reasoning(mistral: Caller, stream: bool) -> None:
    said = "hi [[sandbox reasoning=2 reasoning-field=content]]"
    response = mistral.chat(said, model="breeze/echo", stream=stream)
    if stream:
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks_of(response)[:-1]]
        text, thought = ("".join(delta.get(name) or "" for delta in deltas) for name in ("content", "reasoning"))
    else:
        message = response.json()["choices"][0]["message"]
        text, thought = message["content"], message["reasoning"]
    assert (text, thought) == ("You said: hi", "thought-1 thought-2")


def test_a_conversation_that_another_provider_began_goes_on(mistral: Caller) -> None:
    tag = uuid4().hex
    call_id = join_signature("call_" + "0" * 30, "a seal")
    call = {
        "id": call_id,
        "type": "function",
        "function": {"name": "weather", "arguments": "{}"},
        "extra_content": {"google": {"thought_signature": "a seal"}},
    }
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": f"[[sandbox tag={tag}]]"},
        QUESTION,
        {"role": "assistant", "content": None, "refusal": None, "reasoning": "Hm.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": "Sun"},
        {"role": "user", "content": "Sure?"},
    ]
    response = mistral.chat(model="breeze/tools", messages=messages, tools=[WEATHER], seed=7, user="u")
    assert response.status_code == 200, response.content
    assert response.headers["x-gateway-loss"] == "user"
    (sent,) = mistral.sent(tag)
    body = sent["body"]
    assert (body["random_seed"], "seed" in body, "user" in body) == (7, False, False)
    _, _, answer, result, word, last = body["messages"]
    [written] = answer["tool_calls"]
    assert written["id"].isalnum()
    assert (len(written["id"]), result["tool_call_id"]) == (9, written["id"])
    assert written.keys() == {"id", "type", "function"}
    assert answer["content"] == [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]
    assert (word["role"], word["content"], last["content"]) == ("assistant", "OK", "Sure?")

"""Tools beside reasoning: OpenAI's chat format refuses the two together, so such requests go to its Responses API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.catalog import catalog_cache
from apps.gateway.access.credentials import CREDITS, Credential
from apps.gateway.canonical.chat import Chat
from apps.gateway.dialects.chat import anthropic, google, openai
from apps.gateway.routing.candidate import Candidate
from apps.gateway.tasks import TASKS
from apps.gateway.upstream.call_provider import target_of

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
SAID = {"model": "m", "max_tokens": 2_000, "messages": [{"role": "user", "content": "Rain in Oslo?"}]}
FUNCTION = {"type": "function", "function": {"name": "look", "description": "d", "parameters": SCHEMA}}


def of_chat(**fields: Any) -> Chat:
    return openai.read_request(json.dumps({**SAID, **fields}).encode())


ASKED = {
    "no tools": of_chat(reasoning_effort="low"),
    "tools": of_chat(tools=[FUNCTION]),
    "tools without reasoning": of_chat(tools=[FUNCTION], reasoning_effort="none"),
    "tools and an effort": of_chat(tools=[FUNCTION], reasoning_effort="low"),
    "tools of free text": of_chat(tools=[{"type": "custom", "custom": {"name": "patch"}}], reasoning_effort="low"),
    "messages": anthropic.read_request(
        json.dumps(
            {
                **SAID,
                "tools": [{"name": "look", "input_schema": SCHEMA}],
                "thinking": {"type": "adaptive"},
                "output_config": {"effort": "low"},
            }
        ).encode()
    ),
    "gemini": google.read_request(
        json.dumps(
            {
                "contents": [{"role": "user", "parts": [{"text": "Rain in Oslo?"}]}],
                "tools": [{"functionDeclarations": [{"name": "look", "parametersJsonSchema": SCHEMA}]}],
                "generationConfig": {"thinkingConfig": {"thinkingLevel": "low"}},
            }
        ).encode()
    ),
}
CHATS, RESPONSES = "/chat/completions", "/responses"


def path_and_body(chat: Chat, model: str, provider: str) -> tuple[str, dict[str, Any]]:
    offer = next(one for one in catalog_cache.current().models[model].offers if one.provider.id == provider)
    candidate = Candidate(offer, Credential(CREDITS, service_secret="x"), offer.model_name)
    dialect, target = TASKS[chat.task].find_dialect(chat, offer), target_of(candidate)
    assert dialect is not None
    return dialect.url_of("", chat, target), json.loads(dialect.write_request(chat, target))


@pytest.mark.django_db
@pytest.mark.parametrize("provider", ["openai", "azure"])
@pytest.mark.parametrize(
    ("model", "paths"),
    [
        ("gpt-5.2", dict.fromkeys(ASKED, CHATS)),
        *(
            (
                model,
                dict.fromkeys(ASKED, RESPONSES)
                | dict.fromkeys(("no tools", "tools", "tools without reasoning"), CHATS),
            )
            for model in ("gpt-5.4", "gpt-5.4-mini", "gpt-5.4-nano", "gpt-5.5")
        ),
        *(
            (model, dict.fromkeys(ASKED, RESPONSES) | {"no tools": CHATS})
            for model in ("gpt-5.6", "gpt-5.6-luna", "gpt-5.6-sol", "gpt-5.6-terra", "gpt-6-sol", "gpt-6.1-terra")
        ),
    ],
)
def test_tools_beside_reasoning_go_where_the_model_takes_both(model: str, paths: dict[str, str], provider: str) -> None:
    assert {name: path_and_body(chat, model, provider)[0] for name, chat in ASKED.items()} == paths


@pytest.mark.django_db
def test_tools_and_the_effort_both_arrive() -> None:
    for name in ("tools and an effort", "messages", "gemini"):
        _, body = path_and_body(ASKED[name], "gpt-5.6-terra", "openai")
        assert [tool["name"] for tool in body["tools"]] == ["look"], name
        assert body["reasoning"]["effort"] == "low", name


@pytest.mark.django_db
def test_gpt_5_6_is_not_told_what_it_refuses() -> None:
    """It takes no temperature but 1, and knows no effort `minimal`."""
    _, body = path_and_body(of_chat(temperature=0.2, reasoning_effort="minimal"), "gpt-5.6-luna", "openai")
    assert "temperature" not in body
    assert body["reasoning_effort"] == "low"

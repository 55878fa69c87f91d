"""Web search: wherever the catalog says that a model has one, its provider is asked for it in words that it has."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest

from apps.catalog import catalog_cache
from apps.gateway.access.credentials import CREDITS, Credential
from apps.gateway.canonical.chat import Chat
from apps.gateway.dialects.chat import anthropic, openai
from apps.gateway.routing.candidate import Candidate
from apps.gateway.tasks import TASKS
from apps.gateway.upstream.call_provider import target_of

QUESTION = {"model": "m", "max_tokens": 999, "messages": [{"role": "user", "content": "What is new?"}]}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
ASKED = {
    "a switch": openai.read_request(json.dumps({**QUESTION, "web_search": True}).encode()),
    "a tool": openai.read_request(json.dumps({**QUESTION, "tools": [{"type": "web_search"}]}).encode()),
    "a plugin": openai.read_request(json.dumps({**QUESTION, "plugins": [{"id": "web"}]}).encode()),
    "Claude Code": anthropic.read_request(
        json.dumps(
            {**QUESTION, "tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 8}]}
        ).encode()
    ),
}


def written(chat: Chat, model: str, provider: str) -> tuple[str, dict[str, Any]]:
    """Return where a chat would be sent, and the body."""
    offer = next(one for one in catalog_cache.current().models[model].offers if one.provider.id == provider)
    candidate = Candidate(offer, Credential(CREDITS, service_secret="x"), offer.model_name)
    dialect, target = TASKS[chat.task].find_dialect(chat, offer), target_of(candidate)
    assert dialect is not None
    return dialect.url_of("", chat, target), json.loads(dialect.write_request(chat, target))


@pytest.mark.django_db
@pytest.mark.parametrize("asked", ASKED)
def test_a_search_that_the_catalog_lists_is_one_that_can_be_asked_for(asked: str) -> None:
    today = date(2026, 11, 23)
    tried = 0
    for model in catalog_cache.current().models.values():
        for offer in model.offers:
            if offer.web_search and offer.is_live(today) and model.mode == "chat":
                _, body = written(ASKED[asked], model.id, offer.provider.id)
                assert "search" in json.dumps(body, default=str).lower(), f"{offer.provider.id}/{model.id}"
                tried += 1
    assert tried > 50


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("model", "provider", "path", "tool"),
    [
        ("gpt-5-mini", "openai", "/responses", "web_search"),
        ("claude-haiku-4-5", "anthropic", "/messages", "web_search_20250305"),
        ("claude-opus-4", "anthropic", "/messages", "web_search_20250305"),
        ("claude-sonnet-4", "anthropic", "/messages", "web_search_20250305"),
    ],
)
def test_the_models_that_claude_code_searches_with_search(model: str, provider: str, path: str, tool: str) -> None:
    where, body = written(ASKED["Claude Code"], model, provider)
    assert where == path
    assert [one["type"] for one in body["tools"]] == [tool]
    offer = next(one for one in catalog_cache.current().models[model].offers if one.provider.id == provider)
    assert offer.web_search
    assert offer.prices.web_search is not None


@pytest.mark.django_db
def test_without_a_search_the_usual_format_is_spoken() -> None:
    where, body = written(openai.read_request(json.dumps(QUESTION).encode()), "gpt-5-mini", "openai")
    assert (where, "tools" in body) == ("/chat/completions", False)

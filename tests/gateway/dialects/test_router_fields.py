"""Fields of OpenRouter and LiteLLM: what they come to, in bodies of every client format."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from apps.gateway.canonical.chat import Chat, MaxPrice, ReasoningRequest, RoutingPreferences
from apps.gateway.dialects.chat import anthropic, openai
from apps.gateway.dialects.reading.router_fields import ROUTER_FIELDS
from apps.kernel.errors import InvalidRequest

FORMATS = {"openai": openai, "anthropic": anthropic}
READ: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"models": ["a", "m", "b", "a"]}, {"models": ("a", "b")}),
    ({"models": [], "route": "fallback"}, {}),
    ({"fallbacks": ["a", {"model": "b"}, {"m": ["c"]}, {"other": ["d"]}]}, {"models": ("a", "b", "c")}),
    ({"models": ["a"], "fallbacks": ["b", "a"]}, {"models": ("a", "b")}),
    ({"provider": {"order": ["OpenAI", "azure", "openai"]}}, {"order": ("openai", "azure")}),
    ({"provider": {"only": ["azure"], "ignore": ["Groq"]}}, {"only": ("azure",), "ignore": ("groq",)}),
    ({"provider": {"sort": "price"}}, {"sort": "price"}),
    ({"provider": {"sort": {"by": "latency", "partition": "model"}}}, {"sort": "latency"}),
    ({"provider": {"allow_fallbacks": False, "require_parameters": True}},
     {"allow_fallbacks": False, "require_parameters": True}),
    ({"provider": {"data_collection": "deny", "zdr": True}}, {"no_data_collection": True, "zero_data_retention": True}),
    ({"provider": {"max_price": {"prompt": "0.5", "completion": 2}}},
     {"max_price": MaxPrice(prompt=Decimal("0.5"), completion=Decimal(2))}),
    ({"disable_fallbacks": True}, {"allow_fallbacks": False}),
    ({"num_retries": 1}, {"retries": 1}),
    ({"max_retries": 0}, {"retries": 0}),
    ({"timeout": "2.5"}, {"timeout": 2.5}),
    ({"request_timeout": 30}, {"timeout": 30.0}),
    ({"tags": ["prod", "team-a", "prod"]}, {"tags": ("prod", "team-a")}),
    ({"session_id": "s-1"}, {"session": "s-1"}),
]  # fmt: skip
TOLD: list[tuple[dict[str, Any], list[str]]] = [
    ({"route": "best"}, ["route"]),
    ({"transforms": ["middle-out"]}, ["transforms"]),
    ({"transforms": []}, []),
    ({"num_retries": 9}, ["num_retries"]),
    ({"provider": {"quantizations": ["fp8"], "preferred_max_latency": 2}},
     ["provider.quantizations", "provider.preferred_max_latency"]),
    ({"provider": {"max_price": {"audio": 1}}}, ["provider.max_price.audio"]),
    ({"provider": {"sort": {"by": "price", "partition": "none"}}}, ["provider.sort.partition"]),
    ({"fallbacks": [{"model": "b", "temperature": 0}]}, ["fallbacks[0].temperature"]),
    ({"fallbacks": "default"}, ["fallbacks"]),
    ({"plugins": [{"id": "web", "max_results": 3, "engine": "exa"}]}, ["plugins[0].engine", "plugins[0].max_results"]),
    ({"plugins": [{"id": "web", "engine": "native"}, {"id": "auto-router", "enabled": False}]}, []),
    ({"plugins": [{"id": "file-parser", "pdf": {"engine": "mistral-ocr"}}]}, ["plugins[0]"]),
    ({"plugins": [{"id": "file-parser", "pdf": {"engine": "native"}}, {"id": "file-parser"}]}, []),
    ({"plugins": [{"id": "context-compression"}]}, ["plugins[0]"]),
    ({"drop_params": False}, ["drop_params"]),
    ({"drop_params": True}, []),
    ({"extra_body": {"x": 1}, "api_key": "sk-1", "preset": "p", "cache": {"no-cache": True}},
     ["extra_body", "api_key", "preset", "cache"]),
]  # fmt: skip
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"models": "a"}, "invalid_parameters", "models"),
    ({"models": ["a"] * 11}, "invalid_parameters", "models"),
    ({"models": ["a", ""]}, "invalid_parameters", "models[1]"),
    ({"fallbacks": [3]}, "invalid_parameters", "fallbacks[0]"),
    ({"fallbacks": [{"m": "c"}]}, "invalid_parameters", "fallbacks[0].m"),
    ({"provider": "openai"}, "invalid_parameters", "provider"),
    ({"provider": {"order": "openai"}}, "invalid_parameters", "provider.order"),
    ({"provider": {"sort": "beauty"}}, "invalid_parameters", "provider.sort"),
    ({"provider": {"data_collection": "maybe"}}, "invalid_parameters", "provider.data_collection"),
    ({"provider": {"max_price": {"prompt": "cheap"}}}, "invalid_parameters", "provider.max_price.prompt"),
    ({"provider": {"max_price": {"prompt": -1}}}, "invalid_parameters", "provider.max_price.prompt"),
    ({"provider": {"enforce_distillable_text": True}}, "unsupported_feature", "provider.enforce_distillable_text"),
    ({"plugins": [{"id": "moderation"}]}, "unsupported_feature", "plugins[0]"),
    ({"guardrails": ["pii"]}, "unsupported_feature", "guardrails"),
    ({"mock_response": "hi"}, "unsupported_feature", "mock_response"),
    ({"num_retries": -1}, "invalid_parameters", "num_retries"),
    ({"timeout": 0}, "invalid_parameters", "timeout"),
    ({"timeout": "nan"}, "invalid_parameters", "timeout"),
    ({"tags": ["x" * 201]}, "invalid_parameters", "tags[0]"),
    ({"tags": "prod"}, "invalid_parameters", "tags"),
    ({"usage": {"include": "yes"}}, "invalid_parameters", "usage.include"),
]


def read(form: str, **body: Any) -> Chat:
    """Return the chat of a small body in one of the formats."""
    whole = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]} | body
    return FORMATS[form].read_request(json.dumps(whole).encode())


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(("body", "wishes"), READ)
def test_wishes_are_read_in_every_format(form: str, body: dict[str, Any], wishes: dict[str, Any]) -> None:
    chat = read(form, **body)
    assert chat.preferences == (RoutingPreferences(**wishes) if wishes else None)
    assert (chat.dropped_fields, chat.extra) == (None, None)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(("body", "told"), TOLD)
def test_what_has_no_meaning_here_is_told_by_name(form: str, body: dict[str, Any], told: list[str]) -> None:
    chat = read(form, **body)
    assert [loss.param for loss in chat.dropped_fields or ()] == told
    assert chat.extra is None


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(("body", "code", "param"), REFUSED)
def test_what_cannot_be_meant_or_promised_is_refused_by_name(
    form: str, body: dict[str, Any], code: str, param: str
) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        read(form, **body)
    assert (refusal.value.code, refusal.value.param) == (code, param)


@pytest.mark.parametrize("form", FORMATS)
def test_the_first_of_models_is_the_model_where_none_is_named(form: str) -> None:
    chat = read(form, model=None, models=["first", "second"])
    assert (chat.model, chat.preferences) == ("first", RoutingPreferences(models=("second",)))


@pytest.mark.parametrize("form", FORMATS)
def test_plugins_and_switches_become_what_the_gateway_has(form: str) -> None:
    chat = read(form, plugins=[{"id": "web"}, {"id": "response-healing"}], usage={"include": True})
    assert (chat.web_search, chat.plugins, chat.usage_details) == (True, ["response-healing"], True)
    assert read(form, include_reasoning=False).reasoning == ReasoningRequest(exclude=True)
    assert read(form, include_reasoning=True).reasoning is None


def test_an_own_key_in_a_body_is_told_without_its_value() -> None:
    chat = read("openai", api_key="sk-secret")
    assert "sk-secret" not in repr(chat.dropped_fields)


def test_a_field_that_nobody_knows_still_passes() -> None:
    chat = read("openai", min_p=0.1, models=["b"])
    assert chat.extra == {"min_p": 0.1}
    assert "min_p" not in ROUTER_FIELDS

"""Refusals that help: a bad part or tool is named, and a model that cannot says who can, or which part is missing."""

from __future__ import annotations

from typing import Any

import pytest

from apps.catalog.models import ModelProvider
from apps.kernel.near_names import NearNames
from apps.kernel.valkey import generation
from tests.support.anthropic_requests import ask as ask_messages
from tests.support.upstream import Caller, nothing_happened

UNREADABLE: list[tuple[str, dict[str, Any], str]] = [
    ("openai", {"tools": [{"type": "magic"}]}, "tools[0].type"),
    ("openai", {"messages": [{"role": "user", "content": [{"type": "magic"}]}]}, "messages[0].content[0].type"),
    ("anthropic", {"tools": [{"name": "f"}]}, "tools[0].input_schema"),
    ("anthropic", {"tools": [{"type": "magic", "name": "f"}]}, "tools[0].type"),
    ("anthropic", {"messages": [{"role": "user", "content": [{"type": "magic"}]}]}, "messages[0].content[0].type"),
    ("anthropic", {"mcp_servers": [{"type": "url", "url": "https://x", "name": "m"}]}, "mcp_servers"),
]


@pytest.mark.parametrize(("form", "fields", "place"), UNREADABLE)
def test_what_no_model_could_use_is_refused_by_name(
    caller: Caller, form: str, fields: dict[str, Any], place: str
) -> None:
    ask = caller.chat if form == "openai" else lambda *asked, **more: ask_messages(caller, *asked, **more)
    response = ask(**fields) if "messages" in fields and form == "openai" else ask("hi", **fields)
    assert response.status_code == 400, response.content
    assert place in response.json()["error"]["message"]
    if place != "mcp_servers":
        # Which some provider's format may be able to say: it is recorded.
        assert nothing_happened(caller)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"logprobs": True}, "logprobs"),
    ],
)
def test_a_refusal_names_who_can(caller: Caller, backup: str, fields: dict[str, Any], param: str) -> None:
    no = {"json_output": False, "structured_outputs": False, "tools": False, "facts": {"unsupported": ["logprobs"]}}
    ModelProvider.objects.filter(provider_id="sandbox", model_id="echo").update(**no)
    generation.bump(generation.CATALOG)
    error = caller.chat(model="sandbox/echo", **fields).json()["error"]
    assert (error["code"], error["param"]) == ("unsupported_feature", param)
    assert "; for example backup/echo does" in error["message"] or "; for example backup/echo, " in error["message"]


def test_a_model_without_credentials_says_what_would_help(caller: Caller, settings: Any) -> None:
    error = caller.chat(model="openai/gpt-5.5").json()["error"]
    assert error["code"] == "model_not_found"
    assert "Add a provider key of your own (POST /keys/provider), or start the gateway with " in error["message"]
    assert "OPENAI_API_KEY" in error["message"]
    settings.DEVELOPMENT = False
    told = caller.chat(model="openai/gpt-5.5").json()["error"]["message"]
    assert "Add a provider key of your own" in told
    assert "API_KEY" not in told


def test_a_mapping_that_is_switched_off_says_so(caller: Caller, backup: str) -> None:
    ModelProvider.objects.filter(provider_id="sandbox", model_id="echo").update(active=False)
    generation.bump(generation.CATALOG)
    error = caller.chat(model="sandbox/echo").json()["error"]
    assert error["message"] == (
        "sandbox/echo: the provider sandbox is switched off for echo; these providers serve echo: backup"
    )


@pytest.mark.parametrize("field", ["models", "fallbacks"])
def test_of_many_unknown_models_near_names_are_looked_for_once(
    caller: Caller, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_for = []
    find = NearNames.find

    def counting(self: NearNames, wanted: str) -> list[str]:
        looked_for.append(wanted)
        return find(self, wanted)

    monkeypatch.setattr(NearNames, "find", counting)
    names = [f"unknown-model-{number}" for number in range(10)]
    response = caller.chat("hi", model="unknown-model", **{field: names})
    assert response.status_code == 400
    assert len(looked_for) <= 1
    assert nothing_happened(caller)

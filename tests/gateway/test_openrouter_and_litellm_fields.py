"""Request habits of OpenRouter and LiteLLM, from the outside: each field is honoured, told or refused by name."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from apps.catalog.models import ModelProvider
from apps.kernel.valkey import generation
from apps.logs.models import RequestLog
from tests.support.anthropic_requests import ask, speak
from tests.support.anthropic_requests import ask as ask_messages
from tests.support.upstream import Caller, chunks_of, nothing_happened, settle_all


def answered(response: Any) -> dict[str, Any]:
    """Return the answer of a request that succeeded."""
    assert response.status_code == 200, response.content
    body: dict[str, Any] = response.json()
    return body


def warned(body: dict[str, Any]) -> list[str]:
    """Return the fields that an answer says were left out."""
    return [warning["param"] for warning in body["metadata"].get("warnings", [])]


def tagged(directives: str = "") -> tuple[str, str]:
    """Return a tag of the sandbox's, and a question under it."""
    tag = uuid4().hex
    return tag, f"hi [[sandbox {directives} tag={tag}]]"


# Which provider answers `echo`, by the preferences; the backup is dearer than the sandbox.
CHOSEN: list[tuple[dict[str, Any], str, str]] = [
    ({}, "sandbox", "weighted-score"),
    ({"provider": {"order": ["backup"]}}, "backup", "provider-order"),
    ({"provider": {"order": ["Backup", "sandbox"]}}, "backup", "provider-order"),
    ({"provider": {"order": ["nobody", "sandbox"]}}, "sandbox", "provider-order"),
    ({"provider": {"only": ["backup/turbo"]}}, "backup", "single-provider-available"),
    ({"provider": {"ignore": ["sandbox"]}}, "backup", "single-provider-available"),
    ({"provider": {"sort": "price"}}, "sandbox", "sorted-by-price"),
    ({"model": "echo:floor"}, "sandbox", "sorted-by-price"),
    ({"model": "echo:nitro"}, "sandbox", "sorted-by-throughput"),
    ({"model": "sandbox/echo", "provider": {"only": ["backup"]}}, "backup", "single-provider-available"),
    ({"provider": {"max_price": {"prompt": 1_000}}}, "sandbox", "weighted-score"),
]


@pytest.mark.parametrize(("fields", "provider", "reason"), CHOSEN)
def test_a_client_chooses_among_providers(
    caller: Caller, backup: str, fields: dict[str, Any], provider: str, reason: str
) -> None:
    body = answered(caller.chat(**{"model": "echo", **fields}))
    metadata = body["metadata"]
    assert (metadata["used_provider"], body["provider"]) == (provider, provider)
    assert metadata["selectionReason"] in {reason, "price-only-no-metrics"}
    assert warned(body) == (["provider.order"] if "nobody" in str(fields) else [])


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"provider": {"only": ["nobody"]}}, "provider.only", "unsupported_feature"),
    ({"provider": {"ignore": ["sandbox", "backup"]}}, "provider.ignore", "unsupported_feature"),
    ({"provider": {"order": ["nobody"], "allow_fallbacks": False}}, "provider.order", "unsupported_feature"),
    ({"provider": {"zdr": True}}, "provider.zdr", "unsupported_feature"),
    ({"provider": {"data_collection": "deny"}}, "provider.data_collection", "unsupported_feature"),
    ({"provider": {"max_price": {"prompt": 0}}}, "provider.max_price", "unsupported_feature"),
    ({"model": "echo:free"}, "model", "unsupported_feature"),
    ({"model": "echo:magic"}, "model", "model_not_found"),
    ({"mock_response": "hi"}, "mock_response", "unsupported_feature"),
    ({"plugins": [{"id": "moderation"}]}, "plugins[0]", "unsupported_feature"),
    ({"models": ["nobody/nothing"], "model": "also-nothing"}, "model", "model_not_found"),
]


@pytest.mark.parametrize(("fields", "param", "code"), REFUSED)
def test_what_nobody_can_promise_is_refused_and_nothing_happens(
    caller: Caller, backup: str, fields: dict[str, Any], param: str, code: str
) -> None:
    tag, question = tagged()
    response = caller.chat(question, **{"model": "echo", **fields})
    assert (response.status_code, response.json()["error"]["param"], response.json()["error"]["code"]) == (
        400,
        param,
        code,
    )
    assert caller.sent(tag) == []
    assert nothing_happened(caller)


def test_a_promise_that_a_data_file_states_is_kept_by_who_gave_it(caller: Caller, backup: str) -> None:
    ModelProvider.objects.filter(provider_id=backup).update(facts={"zero_data_retention": True})
    generation.bump(generation.CATALOG)
    body = answered(caller.chat(model="echo", provider={"zdr": True}))
    assert body["metadata"]["used_provider"] == backup


TOLD: list[tuple[dict[str, Any], list[str]]] = [
    ({"transforms": ["middle-out"]}, ["transforms"]),
    ({"provider": {"quantizations": ["fp8"]}}, ["provider.quantizations"]),
    ({"num_retries": 50}, ["num_retries"]),
    ({"timeout": 80_000}, ["timeout"]),
    ({"extra_body": {"a": 1}, "api_base": "http://x", "preset": "p"}, ["extra_body", "api_base", "preset"]),
    ({"models": ["nobody/nothing"]}, ["models[0]"]),
    ({"plugins": [{"id": "file-parser", "pdf": {"engine": "pdf-text"}}]}, ["plugins[0]"]),
]


@pytest.mark.parametrize(("fields", "told"), TOLD)
@pytest.mark.parametrize("form", ["openai", "anthropic"])
def test_what_cannot_be_honoured_is_told_in_every_format_and_sent_to_nobody(
    caller: Caller, form: str, fields: dict[str, Any], told: list[str]
) -> None:
    tag, question = tagged()
    ask = caller.chat if form == "openai" else lambda *asked, **more: ask_messages(caller, *asked, **more)
    response = ask(question, **fields)
    assert response.status_code == 200, response.content
    assert response.headers["x-gateway-loss"] == ", ".join(told)
    if form == "openai":
        assert warned(response.json()) == told
    (sent,) = caller.sent(tag)
    assert not {*fields} & {*sent["body"]}
    strict = ask(question, headers={"X-Strict": "true"}, **fields)
    assert (strict.status_code, len(caller.sent(tag))) == (400, 1)
    assert told[0] in strict.content.decode()


def test_a_field_that_nobody_knows_still_passes_to_the_same_format(caller: Caller) -> None:
    tag, question = tagged()
    answered(caller.chat(question, min_p=0.1, x_new={"a": 1}))
    body = caller.sent(tag)[0]["body"]
    assert (body["min_p"], body["x_new"]) == (0.1, {"a": 1})


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "echo", "models": ["echo-fast"]},
        {"model": None, "models": ["echo", "echo-fast"]},
        {"model": "echo", "fallbacks": ["echo-fast"]},
        {"model": "echo", "fallbacks": [{"model": "echo-fast"}]},
        {"model": "echo", "fallbacks": [{"echo": ["echo-fast"]}], "num_retries": 0},
    ],
)
@pytest.mark.parametrize("failure", ["status=503", "status=400", "error=body"])
@pytest.mark.parametrize("stream", [False, True])
def test_the_next_model_answers_when_one_fails_for_whatever_reason(
    caller: Caller, fields: dict[str, Any], failure: str, stream: bool
) -> None:
    _, question = tagged(f"{failure} times=1")
    response = caller.chat(question, stream=stream, **fields)
    assert response.status_code == 200, response.content
    body = chunks_of(response)[-2] if stream else response.json()
    metadata = body["metadata"]
    assert (metadata["used_model"], body["model"]) == ("echo-fast", "echo-fast")
    assert [line["succeeded"] for line in metadata["routing"]] == [False, True]
    assert metadata["fallbackModels"] == ["echo-fast"]
    settle_all()
    row = RequestLog.objects.get(project_id=caller.key.project_id)
    assert (row.used_model, row.has_error) == ("echo-fast", False)


@pytest.mark.parametrize("beta", ["server-side-fallback-2026-06-01", "server-side-fallback-2026-07-01"])
def test_anthropics_fallbacks_are_the_gateways_and_tell_that_a_refusal_stays_one(caller: Caller, beta: str) -> None:
    speak("anthropic")
    tag, question = tagged()
    asked: Any = {"model": "echo", "fallbacks": [{"model": "echo-fast"}]}
    betas = {"anthropic-beta": f"{beta},context-1m-2025-08-07"}
    response = ask(caller, question, headers=betas, **asked)
    assert response.status_code == 200, response.content
    assert response.headers["x-gateway-loss"] == "fallbacks"
    (sent,) = caller.sent(tag)
    assert "fallbacks" not in sent["body"]
    assert {name.lower(): value for name, value in sent["headers"].items()}["anthropic-beta"] == "context-1m-2025-08-07"
    _, failing = tagged("status=503 times=1")
    assert ask(caller, failing, headers=betas, **asked).json()["model"] == "echo-fast"
    assert "x-gateway-loss" not in ask(caller, **asked).headers
    refused = ask(caller, headers={**betas, "X-Strict": "true"}, **asked)
    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")
    assert "fallbacks" in refused.json()["error"]["message"]


def test_without_a_fallback_model_a_refusal_stays_one(caller: Caller) -> None:
    _, question = tagged("status=400 times=1")
    assert caller.chat(question, model="echo").status_code == 400


def test_retries_are_as_many_as_the_client_wants(caller: Caller, backup: str) -> None:
    tag, question = tagged("status=503 times=9")
    assert caller.chat(question, model="echo", num_retries=0).status_code in {502, 503}
    assert len(caller.sent(tag)) == 1
    tag, question = tagged("status=503 times=1")
    body = answered(caller.chat(question, model="echo", num_retries=1))
    assert len(body["metadata"]["routing"]) == 2


def test_fallbacks_are_off_where_the_client_says_so(caller: Caller, backup: str) -> None:
    for fields in ({"provider": {"allow_fallbacks": False}}, {"disable_fallbacks": True}):
        tag, question = tagged("status=503 times=9")
        assert caller.chat(question, model="echo", **fields).status_code in {502, 503}
        assert len(caller.sent(tag)) == 1


def test_a_call_takes_no_longer_than_the_client_gives_it(caller: Caller) -> None:
    tag, question = tagged("latency=3000")
    response = caller.chat(question, timeout=0.1)
    assert (response.status_code, len(caller.sent(tag))) == (504, 1)


def test_required_parameters_pass_over_who_would_leave_one_out(caller: Caller, backup: str) -> None:
    ModelProvider.objects.filter(provider_id="sandbox", model_id="echo").update(facts={"unsupported": ["seed"]})
    generation.bump(generation.CATALOG)
    assert warned(answered(caller.chat(model="echo", seed=1))) == ["seed"]
    body = answered(caller.chat(model="echo", seed=1, provider={"require_parameters": True}))
    assert (body["metadata"]["used_provider"], warned(body)) == (backup, [])


@pytest.mark.parametrize("stream", [False, True])
def test_the_cost_is_told_in_openrouters_words(caller: Caller, stream: bool) -> None:
    response = caller.chat(usage={"include": True}, stream=stream)
    assert response.status_code == 200
    body = chunks_of(response)[-2] if stream else response.json()
    usage = body["usage"]
    assert usage["cost"] == usage["cost_usd_total"]
    assert set(usage["cost_details"]) == {
        "upstream_inference_cost",
        "upstream_inference_prompt_cost",
        "upstream_inference_completions_cost",
    }
    assert "cost_details" not in answered(caller.chat())["usage"]


@pytest.mark.parametrize("stream", [False, True])
def test_an_answers_id_leads_to_its_generation(caller: Caller, stream: bool) -> None:
    response = caller.chat(stream=stream)
    chunks = chunks_of(response)[:-1] if stream else [response.json()]
    (identifier,) = {chunk["id"] for chunk in chunks}
    assert {chunk["provider"] for chunk in chunks} == {"sandbox"}
    headers = {"Authorization": f"Bearer {caller.token}"}
    assert caller.client.get("/v1/generation", {"id": identifier}, headers=headers).status_code == 404
    settle_all()
    told = caller.client.get("/v1/generation", {"id": identifier}, headers=headers).json()["data"]
    assert (told["id"], told["provider_name"], told["streamed"]) == (identifier, "sandbox", stream)


def test_tags_are_logged_where_they_can_be_looked_for(caller: Caller) -> None:
    caller.key.project.organization.__class__.objects.update(retention_level="metadata")
    answered(caller.chat(tags=["prod", "team a"], headers={"x-gateway-team": "blue"}))
    settle_all()
    row = RequestLog.objects.get(project_id=caller.key.project_id)
    assert row.custom_headers == {"team": "blue", "tag:prod": "true", "tag:team a": "true"}


def test_a_search_is_asked_for_by_plugin_and_by_ending(caller: Caller) -> None:
    for fields in ({"plugins": [{"id": "web"}]}, {"model": "sandbox/echo:online"}):
        response = caller.chat(**fields)
        assert (response.status_code, response.json()["error"]["message"]) == (
            400,
            f"{fields.get('model', 'sandbox/echo').partition(':')[0]} does not support web search",
        )


def test_an_ending_asks_for_reasoning(caller: Caller) -> None:
    ModelProvider.objects.filter(provider_id="sandbox", model_id="echo").update(reasoning=True)
    generation.bump(generation.CATALOG)
    tag, question = tagged()
    answered(caller.chat(question, model="echo:thinking"))
    assert caller.sent(tag)[0]["body"]["reasoning_effort"] == "medium"
    tag, question = tagged()
    answered(caller.chat(question, model="echo:thinking", reasoning_effort="low"))
    assert caller.sent(tag)[0]["body"]["reasoning_effort"] == "low"


def test_what_would_answer_is_explained_with_preferences(caller: Caller, backup: str) -> None:
    body = {"model": "echo:floor", "messages": [{"role": "user", "content": "hi"}], "provider": {"order": ["backup"]}}
    body["transforms"] = ["middle-out"]
    told = caller.client.post(
        "/v1/route/explain",
        body,
        content_type="application/json",
        headers={"Authorization": f"Bearer {caller.token}"},
    ).json()
    assert (told["used_provider"], told["selectionReason"]) == ("backup", "provider-order")
    assert [warning["param"] for warning in told["warnings"]] == ["transforms"]

"""Google's format: authentication, paths, answers, streams, refusals, and stored content (section 4)."""

from __future__ import annotations

import json
import logging
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from tests.support.google_requests import WEATHER, ask, chunks_of, error_of, text_of
from tests.support.guardrails_in_force import forbid, guard
from tests.support.model_routes import call
from tests.support.providers_of_every_format import PLACES, play
from tests.support.upstream import Caller, nothing_happened, settle_all

CLOUD = "/v1beta1/projects/p/locations/global/publishers"


@pytest.mark.parametrize(
    "path",
    [
        "/v1beta/models/sandbox/echo:generateContent",
        "/v1beta/models/sandbox%2Fecho:generateContent",
        "/v1beta/models/models/sandbox/echo:generateContent",
        "/v1beta/sandbox/echo:generateContent",
        "/v1beta/tunedModels/echo:generateContent",
        "/v1/models/sandbox/echo:generateContent",
        f"{CLOUD}/google/models/echo:generateContent",
        f"{CLOUD}/sandbox/models/echo:generateContent",
        "/v1/publishers/google/models/sandbox/echo:generateContent",
    ],
)
def test_a_model_is_asked_at_every_path_of_googles_clients(caller: Caller, path: str) -> None:
    body = json.dumps({"contents": [{"parts": [{"text": "hi"}]}]}).encode()
    headers = {"HTTP_X_GOOG_API_KEY": caller.token, "CONTENT_TYPE": "application/json"}
    answer = call(path.replace("%2F", "/"), body, headers)
    assert answer.status == 200, answer.content
    assert answer.json()["candidates"][0]["content"] == {"parts": [{"text": "You said: hi"}], "role": "model"}
    assert answer.json()["modelVersion"] == "echo"


@pytest.mark.parametrize("method", ["get", "post", "delete"])
@pytest.mark.parametrize("path", ["/v1beta/nothing", "/v1beta/files/abc", "/v1beta/nothing:translate", "/v1beta"])
def test_a_path_that_is_nowhere_is_not_found_in_googles_words(caller: Caller, method: str, path: str) -> None:
    answer = getattr(caller.client, method)(path, headers={"x-goog-api-key": caller.token})
    status, word, message = error_of(answer)
    assert (answer.status_code, status, word) == (404, 404, "NOT_FOUND")
    assert message.startswith("There is nothing at this path")
    assert nothing_happened(caller)


@pytest.mark.parametrize("where", ["x-goog-api-key", "query", "bearer", "x-api-key"])
def test_a_key_opens_the_door_wherever_googles_clients_put_it(caller: Caller, where: str) -> None:
    asked: dict[str, Any] = {
        "x-goog-api-key": {},
        "query": {"key": None, "query": f"?key={caller.token}"},
        "bearer": {"key": None, "headers": {"Authorization": f"Bearer {caller.token}"}},
        "x-api-key": {"key": None, "headers": {"x-api-key": caller.token}},
    }
    assert ask(caller, **asked[where]).status_code == 200


@pytest.mark.parametrize("presented", [{"key": None}, {"query": "?key=gw_dev_other"}, {"key": "gw_dev_" + "0" * 40}])
def test_without_a_key_or_with_two_nothing_happens(caller: Caller, presented: dict[str, Any]) -> None:
    status, word, _ = error_of(ask(caller, **presented))
    assert (status, word) == (401, "UNAUTHENTICATED")
    assert nothing_happened(caller)


def test_a_key_in_the_query_is_written_nowhere(caller: Caller, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    query = f"?key={caller.token}"
    assert ask(caller, key=None, query=query).status_code == 200
    assert ask(caller, "hi [[sandbox status=503]]", key=None, query=query).status_code == 503
    assert caller.client.get(f"/v1beta/nothing{query}").status_code == 404
    settle_all()
    rows = json.dumps(list(RequestLog.objects.values()), default=str)
    assert caller.token not in caplog.text + rows


def test_a_whole_answer_is_counted_billed_and_logged(caller: Caller) -> None:
    Organization.objects.filter(pk=caller.organization_id).update(retention_level="retain")
    response = ask(
        caller,
        "hi [[sandbox usage=1000,200,100]]",
        systemInstruction={"parts": [{"text": "Be brief."}]},
        generationConfig={"maxOutputTokens": 500, "temperature": 0.5},
        tools=[{"functionDeclarations": [WEATHER]}],
        toolConfig={"functionCallingConfig": {"mode": "AUTO"}},
    )
    usage = response.json()["usageMetadata"]
    counts = ("promptTokenCount", "cachedContentTokenCount", "candidatesTokenCount", "totalTokenCount")
    assert [usage[name] for name in counts] == [1000, 100, 200, 1200]
    assert response.json()["metadata"]["used_provider"] == "sandbox"
    settle_all()
    log = RequestLog.objects.get()
    assert (log.route, log.status_code, log.streamed, log.max_tokens) == ("generate_content", 200, False, 500)
    assert log.cost == Decimal(str(usage["costUsd"]["total"])) > 0
    assert log.messages == [
        {"role": "system", "parts": [{"text": "Be brief."}]},
        {"role": "user", "parts": [{"text": "hi [[sandbox usage=1000,200,100]]"}]},
    ]
    assert (log.content, log.tools) == ("You said: hi", [{"functionDeclarations": [WEATHER]}])
    assert log.tool_choice == {"functionCallingConfig": {"mode": "AUTO"}}


@pytest.mark.parametrize(("query", "kind"), [("?alt=sse", "text/event-stream"), ("", "application/json")])
def test_a_stream_comes_as_events_or_as_one_array(caller: Caller, query: str, kind: str) -> None:
    asked = "one two three [[sandbox chunks=3 usage=10,5]]"
    response = ask(caller, asked, method="streamGenerateContent", query=query)
    assert response["Content-Type"].startswith(kind)
    *chunks, last = chunks_of(response)
    said = [chunk["candidates"][0]["content"]["parts"][0]["text"] for chunk in chunks]
    assert (len(said), "".join(said)) == (3, "You said: one two three")
    assert all("finishReason" not in chunk["candidates"][0] for chunk in chunks)
    assert last["candidates"][0]["finishReason"] == "STOP"
    assert last["usageMetadata"]["totalTokenCount"] == 15
    assert len({chunk["responseId"] for chunk in [*chunks, last]}) == 1


@pytest.mark.parametrize("query", ["?alt=sse", ""])
def test_a_stream_that_breaks_ends_with_an_error(caller: Caller, query: str) -> None:
    asked = "one two three four [[sandbox cut=middle]]"
    *_, last = chunks_of(ask(caller, asked, method="streamGenerateContent", query=query))
    error = last["error"]
    assert (error["code"], error["status"]) == (502, "UNAVAILABLE")
    assert error["details"][0]["reason"] == "ALL_PROVIDERS_FAILED"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"contents": None}, "contents: Required"),
        ({"contents": []}, "contents: must hold at least one content"),
        ({"contents": [{"role": "system"}]}, "contents[0].role: must be one of user, model, function"),
        (
            {"contents": [{"parts": [{"text": "a", "inlineData": {}}]}]},
            "contents[0].parts[0]: must hold one of inlineData, text",
        ),
        (
            {"generation_config": {"max_output_tokens": 0}},
            "generationConfig.maxOutputTokens: must be between 1 and 1000000000",
        ),
        ({"tools": [{"functionDeclarations": [{}]}]}, "tools[0].functionDeclarations[0].name: Required"),
    ],
)
def test_a_field_that_cannot_be_taken_is_400_and_named(caller: Caller, fields: dict[str, Any], message: str) -> None:
    response = ask(caller, **fields)
    assert error_of(response) == (400, "INVALID_ARGUMENT", message)
    violation = response.json()["error"]["details"][1]["fieldViolations"][0]
    assert violation["field"] == message.partition(": ")[0]
    assert nothing_happened(caller)


def test_what_is_not_there_is_404_in_words(caller: Caller) -> None:
    assert error_of(ask(caller, model="no-such-model"))[:2] == (404, "NOT_FOUND")
    status, word, message = error_of(ask(caller, method="embedVideo"))
    assert (status, word) == (404, "NOT_FOUND")
    assert message.startswith("`embedVideo` is no method of a model here")
    assert nothing_happened(caller)


@pytest.mark.parametrize(
    ("status", "word"), [(400, "INVALID_ARGUMENT"), (429, "RESOURCE_EXHAUSTED"), (503, "UNAVAILABLE")]
)
def test_a_providers_failure_has_googles_word(caller: Caller, status: int, word: str) -> None:
    response = ask(caller, f"hi [[sandbox status={status}]]")
    assert error_of(response)[:2] == (status, word)


def test_fields_that_cannot_be_honoured_are_told_or_refused(caller: Caller) -> None:
    fields = {"safetySettings": [], "generationConfig": {"mediaResolution": "MEDIA_RESOLUTION_LOW"}, "x": 1}
    response = ask(caller, **fields)
    named = [warning["param"] for warning in response.json()["metadata"]["warnings"]]
    assert sorted(named) == ["generationConfig.mediaResolution", "safetySettings", "x"]
    status, _, message = error_of(ask(caller, **fields, headers={"X-Strict": "true"}))
    assert status == 400
    assert "safetySettings" in message


@pytest.mark.parametrize(
    ("fields", "name"),
    [({"cachedContent": "c"}, "cachedContent"), ({"tools": [{"codeExecution": {}}]}, "codeExecution")],
)
def test_what_only_google_has_is_refused_by_name(caller: Caller, fields: dict[str, Any], name: str) -> None:
    status, word, message = error_of(ask(caller, **fields))
    assert (status, word, name in message) == (400, "INVALID_ARGUMENT", True)


def test_a_prompts_tokens_are_counted_for_nothing(caller: Caller) -> None:
    few = ask(caller, "hello", method="countTokens").json()["totalTokens"]
    more = {"contents": [{"parts": [{"text": "hello " * 50}]}]}
    many = ask(caller, method="countTokens", contents=None, generateContentRequest={"model": "models/m", **more})
    assert 0 < few < many.json()["totalTokens"]
    assert nothing_happened(caller)


def test_models_come_in_pages_and_one_by_one(caller: Caller) -> None:
    names: list[str] = []
    token = ""
    while True:
        page = caller.client.get(f"/v1beta/models?pageSize=100&pageToken={token}").json()
        names += [model["name"] for model in page["models"]]
        token = page.get("nextPageToken", "")
        if not token:
            break
    assert len(names) == len(set(names)) > 100
    assert names == sorted(names)
    one = caller.client.get("/v1beta/models/anthropic/claude-haiku-4-5").json()
    assert (one["name"], one["displayName"]) == ("models/claude-haiku-4-5", "Claude Haiku 4.5")
    google = {"x-goog-api-key": caller.token}
    assert caller.client.get("/v1/models/gpt-5", headers=google).json()["name"] == "models/gpt-5"
    assert caller.client.get("/v1/models/gpt-5").json()["id"] == "gpt-5"
    wrong = caller.client.get("/v1beta/models?key=gw_dev_" + "0" * 40)
    assert error_of(wrong)[:2] == (401, "UNAUTHENTICATED")


def test_guardrails_read_what_is_asked_and_what_is_answered(caller: Caller) -> None:
    guard(caller)
    forbid(caller, "zanzibar", action="redact")
    tag = uuid4().hex
    response = ask(caller, f"tell of zanzibar [[sandbox tag={tag}]]")
    assert response.status_code == 200, response.content
    assert "zanzibar" not in json.dumps(caller.sent(tag))
    assert text_of(response) == "You said: tell of zanzibar"
    forbid(caller, "project omega")
    status, word, _ = error_of(ask(caller, [{"functionResponse": {"name": "f", "response": {"a": "project omega"}}}]))
    assert (status, word) == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize("wire_format", PLACES)
def test_tools_and_signed_thinking_come_back_over_every_format(
    caller: Caller, wire_format: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    play(caller, wire_format, monkeypatch, tmp_path)
    asked: dict[str, Any] = {
        "model": "other/tools",
        "tools": [{"functionDeclarations": [WEATHER]}],
        "generationConfig": {
            "maxOutputTokens": 4000,
            "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 2000},
        },
    }
    question = {"role": "user", "parts": [{"text": 'why? get_weather({"city": "Rome"})'}]}
    response = ask(caller, **asked, contents=[question])
    assert response.status_code == 200, response.content
    content = response.json()["candidates"][0]["content"]
    (call_part,) = [part for part in content["parts"] if "functionCall" in part]
    assert call_part["functionCall"]["args"] == {"city": "Rome"}
    answer = {"functionResponse": {"name": "get_weather", "response": {"output": "Sun"}}}
    # Some clients return everything, others no thoughts, and some no ids.
    without_ids = {**call_part, "functionCall": {"name": "get_weather", "args": {"city": "Rome"}}}
    for parts in (content["parts"], [call_part], [without_ids]):
        contents = [question, {"role": "model", "parts": parts}, {"role": "user", "parts": [answer]}]
        final = ask(caller, **asked, contents=contents)
        assert final.status_code == 200, final.content
        assert text_of(final).endswith("get_weather answered: Sun")
        lost = [warning["param"] for warning in final.json()["metadata"].get("warnings", [])]
        if wire_format not in {"openai", "cohere", "vertex_openai"}:
            # The provider that signed the thinking gets it back.
            assert [param for param in lost if param.startswith("contents")] == []

"""Ollama's API over real HTTP: answers, streams, tools, refusals, records, and the listings (section 4)."""

from __future__ import annotations

import json
from base64 import b64encode
from decimal import Decimal
from typing import Any

import pytest

from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from apps.sandbox.generated_media import vector_of
from tests.clients.pictures import PIXEL
from tests.support.guardrails_in_force import forbid, guard
from tests.support.model_routes import call
from tests.support.upstream import Caller, nothing_happened, settle_all

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALL = 'get_weather({"city": "Zürich"})'
DURATIONS = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")


def post(caller: Caller, path: str, body: Any, key: str | None = None, **headers: str) -> Any:
    """Post a body to a path of Ollama's."""
    sent = {"Authorization": f"Bearer {key or caller.token}", **headers}
    return caller.client.post(f"/api/{path}", json.dumps(body), content_type="application/json", headers=sent)


def chat(caller: Caller, text: str = "hello", *, key: str | None = None, **fields: Any) -> Any:
    """Ask the echo for an answer that is not streamed unless `stream` says otherwise."""
    asked = {"model": "sandbox/echo", "messages": [{"role": "user", "content": text}], "stream": False, **fields}
    return post(caller, "chat", asked, key)


def generate(caller: Caller, prompt: str = "hello", **fields: Any) -> Any:
    return post(caller, "generate", {"model": "sandbox/echo", "prompt": prompt, "stream": False, **fields})


def lines_of(answer: Any) -> list[Any]:
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/x-ndjson")
    return [json.loads(line) for line in b"".join(answer.streaming_content).decode().splitlines()]


def test_a_whole_answer_has_ollamas_fields_and_is_billed_and_logged(caller: Caller) -> None:
    Organization.objects.filter(pk=caller.organization_id).update(retention_level="retain")
    body = chat(
        caller,
        "hi [[sandbox usage=1000,200,100]]",
        options={"num_predict": 500, "temperature": 0.5, "num_ctx": 8192},
        keep_alive="5m",
        tools=[WEATHER],
    ).json()
    assert body["message"] == {"role": "assistant", "content": "You said: hi"}
    assert (body["model"], body["done"], body["done_reason"]) == ("echo", True, "stop")
    assert (body["prompt_eval_count"], body["eval_count"]) == (1000, 200)
    assert all(isinstance(body[name], int) for name in DURATIONS)
    assert body["prompt_eval_duration"] + body["eval_duration"] == body["total_duration"]
    assert body["created_at"].endswith("Z")
    # How long a model is loaded, and with how much context, asks for nothing.
    assert "warnings" not in body["metadata"]
    assert settle_all() == 1
    log = RequestLog.objects.get()
    assert (log.route, log.status_code, log.streamed, log.max_tokens) == ("ollama_chat", 200, False, 500)
    assert log.cost == Decimal(str(body["cost_usd"]["total"])) > 0
    assert log.messages == [{"role": "user", "content": "hi [[sandbox usage=1000,200,100]]"}]
    assert (log.content, log.tools) == ("You said: hi", [WEATHER])


def test_an_answer_is_streamed_unless_the_client_says_otherwise(caller: Caller) -> None:
    asked = {"model": "sandbox/echo", "messages": [{"role": "user", "content": "one two three [[sandbox chunks=3]]"}]}
    *pieces, last = lines_of(post(caller, "chat", asked))
    assert [(piece["done"], piece["message"]["role"]) for piece in pieces] == [(False, "assistant")] * 3
    assert "".join(piece["message"]["content"] for piece in pieces) == "You said: one two three"
    assert (last["done"], last["done_reason"], last["message"]["content"]) == (True, "stop", "")
    assert last["eval_count"] > 0
    assert {piece["model"] for piece in (*pieces, last)} == {"echo"}
    settle_all()
    assert RequestLog.objects.get().streamed is True


@pytest.mark.parametrize("stream", [False, True])
def test_calls_have_their_arguments_as_an_object(caller: Caller, stream: bool) -> None:
    answer = chat(caller, CALL, model="sandbox/tools", tools=[WEATHER], stream=stream)
    said = lines_of(answer) if stream else [answer.json()]
    (call,) = [call for line in said for call in line["message"].get("tool_calls", ())]
    assert call["function"] == {"index": 0, "name": "get_weather", "arguments": {"city": "Zürich"}}
    assert said[-1]["done_reason"] == "stop"


def test_results_belong_to_calls_by_their_tools_name(caller: Caller) -> None:
    named = [{"function": {"name": name, "arguments": {"n": at}}} for at, name in enumerate(("one", "two", "one"))]
    answer = chat(
        caller,
        messages=[
            {"role": "user", "content": "look"},
            {"role": "assistant", "content": "", "tool_calls": named},
            {"role": "tool", "tool_name": "two", "content": "second"},
            {"role": "tool", "tool_name": "one", "content": "first"},
            {"role": "tool", "content": "third"},
            {"role": "user", "content": "and now? [[sandbox tag=ollama-results]]"},
        ],
    )
    assert answer.status_code == 200
    (sent,) = caller.sent("ollama-results")
    calls = sent["body"]["messages"][1]["tool_calls"]
    ids = [call["id"] for call in calls]
    results = {one["tool_call_id"]: one["content"] for one in sent["body"]["messages"] if one["role"] == "tool"}
    assert len(set(ids)) == 3
    assert [results[name] for name in ids] == ["first", "second", "third"]


def test_what_an_option_means_reaches_the_provider(caller: Caller) -> None:
    options = {
        "num_predict": 40,
        "temperature": 0.5,
        "top_p": 0.25,
        "seed": 7,
        "stop": ["END"],
        "presence_penalty": 0.5,
        "frequency_penalty": 0.75,
    }
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    answer = chat(caller, "hi [[sandbox tag=ollama-options]]", options=options, format=schema)
    assert answer.status_code == 200
    (sent,) = caller.sent("ollama-options")
    body = sent["body"]
    assert [body[name] for name in ("max_tokens", "temperature", "top_p", "seed", "stop")] == [
        40,
        0.5,
        0.25,
        7,
        ["END"],
    ]
    assert (body["presence_penalty"], body["frequency_penalty"]) == (0.5, 0.75)
    assert body["response_format"]["json_schema"]["schema"]["required"] == ["name"]


def test_an_option_that_no_other_format_has_is_reported(caller: Caller) -> None:
    answer = chat(caller, options={"mirostat": 1, "repeat_penalty": 1.1}, truncate=True, surprise=1)
    assert answer["x-gateway-loss"] == "surprise, options.mirostat, options.repeat_penalty, truncate"
    refused = post(
        caller,
        "chat",
        {"model": "sandbox/echo", "messages": [{"role": "user", "content": "?"}], "options": {"mirostat": 1}},
        **{"X-Strict": "true"},
    )
    assert (refused.status_code, refused.json()["param"]) == (400, "options.mirostat")


@pytest.mark.parametrize(("think", "is_shown"), [(None, True), (True, True), ("high", True), (False, False)], ids=str)
@pytest.mark.parametrize("stream", [False, True])
def test_thinking_is_shown_unless_it_is_switched_off(caller: Caller, think: Any, is_shown: bool, stream: bool) -> None:
    answer = chat(caller, "hi", model="sandbox/reasoner", think=think, stream=stream)
    said = lines_of(answer) if stream else [answer.json()]
    thought = "".join(line["message"].get("thinking", "") for line in said)
    assert bool(thought) is is_shown
    assert "".join(line["message"]["content"] for line in said).startswith("You said: hi")


def test_an_image_is_sent_with_its_type(caller: Caller) -> None:
    message = {"role": "user", "content": "look [[sandbox tag=ollama-image]]", "images": [b64encode(PIXEL).decode()]}
    assert chat(caller, messages=[message]).status_code == 200
    (sent,) = caller.sent("ollama-image")
    parts = sent["body"]["messages"][0]["content"]
    assert parts[1]["image_url"]["url"] == f"data:image/png;base64,{b64encode(PIXEL).decode()}"


def test_a_prompt_is_completed(caller: Caller) -> None:
    body = generate(caller, "hi [[sandbox tag=ollama-prompt]]", system="Be brief.", context=[]).json()
    assert (body["response"], body["done"], body["done_reason"]) == ("You said: hi", True, "stop")
    assert "message" not in body
    (sent,) = caller.sent("ollama-prompt")
    assert sent["body"]["messages"][0] == {"role": "system", "content": "Be brief."}
    *pieces, last = lines_of(generate(caller, "one two [[sandbox chunks=2]]", stream=None))
    assert "".join(piece["response"] for piece in pieces) == "You said: one two"
    assert (last["response"], last["done"]) == ("", True)
    settle_all()
    assert {row.route for row in RequestLog.objects.all()} == {"ollama_generate"}


@pytest.mark.parametrize(
    ("keep_alive", "reason"), [(None, "load"), ("5m", "load"), (-1, "load"), (0, "unload"), ("0s", "unload")]
)
def test_a_request_without_a_question_loads_nothing_and_costs_nothing(
    caller: Caller, keep_alive: Any, reason: str
) -> None:
    loaded = post(caller, "chat", {"model": "echo:latest", "messages": [], "keep_alive": keep_alive})
    assert loaded.status_code == 200
    body = loaded.json()
    assert (body["model"], body["message"]["content"], body["done"], body["done_reason"]) == ("echo", "", True, reason)
    body = post(caller, "generate", {"model": "echo", "keep_alive": keep_alive}).json()
    assert (body["response"], body["done"], body["done_reason"]) == ("", True, reason)
    unknown = post(caller, "generate", {"model": "no-such-model"})
    assert unknown.status_code == 404
    assert nothing_happened(caller)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "robot", "content": "?"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "?"}]}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "images": ["bm90IGFuIGltYWdl"]}]}, "messages[0].images[0]"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]},
            "messages[0].tool_calls[0].function.name",
        ),
        ({"options": {"temperature": 3}}, "options.temperature"),
        ({"options": {"num_predict": "many"}}, "options.num_predict"),
        ({"format": "xml"}, "format"),
        ({"think": "deeply"}, "think"),
        ({"tools": [{"type": "function", "function": {"parameters": {}}}]}, "tools[0].function.name"),
        ({"stream": "no"}, "stream"),
        ({"top_logprobs": 21}, "top_logprobs"),
    ],
)
def test_a_bad_field_is_refused_by_its_name(caller: Caller, fields: dict[str, Any], param: str) -> None:
    refused = chat(caller, **fields)
    assert (refused.status_code, refused.json()["param"]) == (400, param)
    assert isinstance(refused.json()["error"], str)
    assert nothing_happened(caller)


def test_what_comes_behind_the_answer_cannot_be_said(caller: Caller) -> None:
    refused = generate(caller, "def f(", suffix="return")
    assert (refused.status_code, refused.json()["param"]) == (400, "suffix")
    assert nothing_happened(caller)


def test_errors_are_texts_with_ollamas_statuses(caller: Caller) -> None:
    missing = chat(caller, model="no-such-model")
    assert missing.status_code == 404
    assert missing.json()["error"].startswith("The model `no-such-model` does not exist")
    stranger = chat(caller, key="gw_dev_" + "0" * 40)
    assert (stranger.status_code, stranger.json()["error"]) == (401, "Missing or invalid API key")
    for path in ("pull", "nothing", "chat/more"):
        nowhere = post(caller, path, {"model": "echo"})
        assert nowhere.status_code == 404
        assert nowhere.json()["error"].startswith("There is nothing at this path")
    # Other gateways' form of the paths of OpenAI's API.
    assert caller.client.get("/api/v1/nothing").json()["error"]["type"] == "invalid_request_error"
    assert nothing_happened(caller)


def test_a_failure_in_mid_stream_is_a_line(caller: Caller) -> None:
    said = lines_of(chat(caller, "one two three four [[sandbox cut=middle]]", stream=True))
    assert "error" in said[-1]
    assert isinstance(said[-1]["error"], str)
    assert not any(line.get("done") for line in said)


def test_guardrails_see_a_conversation(caller: Caller) -> None:
    guard(caller)
    forbid(caller, "secret-word")
    refused = chat(caller, "the secret-word")
    assert refused.status_code in (400, 403)
    assert refused.json()["code"] == "guardrail_blocked"


def test_curl_needs_no_content_type(caller: Caller) -> None:
    body = {"model": "sandbox/echo", "messages": [{"role": "user", "content": "hi"}], "stream": False}
    key = f"Bearer {caller.token}"
    curl = {"CONTENT_TYPE": "application/x-www-form-urlencoded", "HTTP_AUTHORIZATION": key}
    answer = call("/api/chat", json.dumps(body).encode(), curl)
    assert (answer.status, answer.json()["message"]["content"]) == (200, "You said: hi")
    other = call("/api/chat", b"x", {"CONTENT_TYPE": "text/plain", "HTTP_AUTHORIZATION": key})
    assert (other.status, other.json()["error"].startswith("Content-Type must be")) == (415, True)


def test_texts_become_vectors(caller: Caller) -> None:
    texts = ["a cat", "a dog"]
    body = post(caller, "embed", {"model": "embedder", "input": texts, "dimensions": 4, "truncate": True}).json()
    assert body["embeddings"] == [list(vector_of(text, 4)) for text in texts]
    assert body["prompt_eval_count"] == 4
    assert [one["param"] for one in body["metadata"]["warnings"]] == ["truncate"]
    one = post(caller, "embed", {"model": "embedder", "input": "a cat"}).json()
    assert one["embeddings"] == [list(vector_of("a cat", 8))]
    older = post(caller, "embeddings", {"model": "embedder", "prompt": "a cat"}).json()
    assert older["embedding"] == list(vector_of("a cat", 8))
    settle_all()
    assert [row.route for row in RequestLog.objects.all()] == ["embeddings"] * 3


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("embed", {"model": "embedder"}, "input"),
        ("embed", {"model": "embedder", "input": []}, "input"),
        ("embed", {"model": "embedder", "input": ["a", 1]}, "input[1]"),
        ("embed", {"input": "a"}, "model"),
        ("embeddings", {"model": "embedder", "prompt": ["a"]}, "prompt"),
    ],
)
def test_an_input_that_is_no_text_is_refused(caller: Caller, path: str, fields: dict[str, Any], param: str) -> None:
    refused = post(caller, path, fields)
    assert (refused.status_code, refused.json()["param"]) == (400, param)
    assert nothing_happened(caller)


def test_models_are_listed_and_shown(caller: Caller) -> None:
    listed = {model["model"]: model for model in caller.client.get("/api/tags").json()["models"]}
    assert listed["echo"]["name"] == "echo"
    assert len(listed["echo"]["digest"]) == 64
    assert listed["echo"]["capabilities"][0] == "completion"
    assert listed["embedder"]["capabilities"] == ["embedding"]
    assert not any(model.startswith("painter") for model in listed)
    shown = post(caller, "show", {"model": "echo:latest"}).json()
    family = shown["model_info"]["general.architecture"]
    assert shown["details"]["family"] == family
    assert shown["capabilities"] == listed["echo"]["capabilities"]
    assert post(caller, "show", {"name": "echo"}).json() == shown
    assert post(caller, "show", {"model": "no-such-model"}).status_code == 404
    assert post(caller, "show", {}).json()["param"] == "model"
    assert caller.client.get("/api/ps").json() == {"models": []}
    assert caller.client.get("/api/version").json() == {"version": "0.12.11"}
    assert nothing_happened(caller)


@pytest.mark.parametrize("path", ["tags", "ps", "version"])
def test_a_wrong_key_is_refused_where_none_is_needed(caller: Caller, path: str) -> None:
    answer = caller.client.get(f"/api/{path}", headers={"Authorization": "Bearer gw_dev_" + "0" * 40})
    assert (answer.status_code, answer.json()["error"]) == (401, "Missing or invalid API key")

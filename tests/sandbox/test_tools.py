"""Tool calls and JSON by schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.sandbox.conftest import Upstream
from tests.sandbox.test_stream import chunks_of

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 2}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Of a city", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "get_time"}},
]
ARGUMENTS = '{"city":"city","days":2}'


def calls_of(upstream: Upstream, content: Any, **body: Any) -> list[tuple[str, str]]:
    """Return name and arguments of each call in a plain reply."""
    choice = upstream.chat(content, **{"tools": TOOLS} | body).json()["choices"][0]
    calls = choice["message"].get("tool_calls", [])
    assert choice["finish_reason"] == ("tool_calls" if calls else "stop")
    assert (choice["message"]["content"] is None) == bool(calls)
    return [(call["function"]["name"], call["function"]["arguments"]) for call in calls]


def named(name: str) -> dict[str, Any]:
    """Return the choice of a tool by name."""
    return {"type": "function", "function": {"name": name}}


@pytest.mark.parametrize(
    ("content", "body", "calls"),
    [
        ("hello", {}, []),
        ("what is the weather?", {}, ["get_weather"]),
        ("what is the weather?", {"tool_choice": "none"}, []),
        ("call get_weather", {}, ["get_weather"]),
        ("Please CALL get_weather and get_time now", {}, ["get_weather", "get_time"]),
        ("call get_time, get_weather", {}, ["get_time", "get_weather"]),
        ("call get_time and get_weather", {"parallel_tool_calls": False}, ["get_time"]),
        ("call nobody", {}, []),
        ("call get_weather", {"tool_choice": "none"}, []),
        ("hello", {"tool_choice": "required"}, ["get_weather"]),
        ("call get_time", {"tool_choice": "required"}, ["get_time"]),
        ("call get_weather", {"tool_choice": named("get_time")}, ["get_time"]),
        ("call get_weather", {"tools": []}, []),
        ("call get_weather [[sandbox words=1]]", {}, []),
    ],
)
def test_calls_what_was_asked_for(upstream: Upstream, content: str, body: dict[str, Any], calls: list[str]) -> None:
    arguments = {"get_weather": ARGUMENTS, "get_time": "{}"}
    assert calls_of(upstream, content, **body) == [(name, arguments[name]) for name in calls]


def test_call_ids_differ_and_stay_the_same(upstream: Upstream) -> None:
    first, second = (
        [
            call["id"]
            for call in upstream.chat("call get_weather and get_time", tools=TOOLS).json()["choices"][0]["message"][
                "tool_calls"
            ]
        ]
        for _ in range(2)
    )
    assert first == second
    assert len(set(first)) == 2
    assert all(identity.startswith("call_") and len(identity) == 29 for identity in first)


def test_quotes_the_results_and_stops(upstream: Upstream) -> None:
    question = {"role": "user", "content": "call get_weather and get_time"}
    message = upstream.chat([question], tools=TOOLS).json()["choices"][0]["message"]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": content}
        for call, content in zip(message["tool_calls"], ["sunny", "noon"], strict=True)
    ]
    choice = upstream.chat([question, message, *results], tools=TOOLS).json()["choices"][0]
    assert choice["message"]["content"] == "get_weather answered: sunny; get_time answered: noon"
    assert choice["finish_reason"] == "stop"
    assert upstream.chat([question, message, *results], tools=TOOLS, tool_choice="required").json()["choices"][0][
        "message"
    ]["tool_calls"]


def test_refuses_calls_without_results_and_results_without_calls(upstream: Upstream) -> None:
    question = {"role": "user", "content": "call get_time"}
    message = upstream.chat([question], tools=TOOLS).json()["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "noon"}
    for messages in (
        [question, message],
        [question, message, question],
        [question, result],
        [question, message, result, result],
        [question, message, result | {"tool_call_id": "call_other"}],
    ):
        response = upstream.chat(messages, tools=TOOLS)
        assert response.status_code == 400
        assert "tool_calls" in response.json()["error"]["message"]


def test_streams_id_and_name_once_and_arguments_in_pieces(upstream: Upstream) -> None:
    message = upstream.chat("call get_weather and get_time", tools=TOOLS).json()["choices"][0]["message"]
    weather, time = (call["id"] for call in message["tool_calls"])
    chunks = chunks_of(upstream.chat("call get_weather and get_time", tools=TOOLS, stream=True).content)

    def begun(index: int, identity: str, name: str) -> dict[str, Any]:
        function = {"name": name, "arguments": ""}
        return {"tool_calls": [{"index": index, "id": identity, "type": "function", "function": function}]}

    def more(index: int, arguments: str) -> dict[str, Any]:
        return {"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}

    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": None, "refusal": None},
        begun(0, weather, "get_weather"),
        more(0, '{"city":'),
        more(0, '"city","'),
        more(0, 'days":2}'),
        begun(1, time, "get_time"),
        more(1, "{}"),
        {},
    ]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_finishes_as_the_scenario_says_whatever_the_answer_is(upstream: Upstream) -> None:
    content = "call get_time [[sandbox finish=stop]]"
    choice = upstream.chat(content, tools=TOOLS).json()["choices"][0]
    assert (choice["finish_reason"], len(choice["message"]["tool_calls"])) == ("stop", 1)
    chunks = chunks_of(upstream.chat(content, tools=TOOLS, stream=True).content)
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


def test_answers_in_json_that_fits_the_schema(upstream: Upstream) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "weather", "strict": True, "schema": WEATHER}}
    assert upstream.text("hello", response_format=wanted) == ARGUMENTS
    streamed = chunks_of(upstream.chat("hello", response_format=wanted, stream=True).content)
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in streamed) == ARGUMENTS
    assert json.loads(upstream.text("hello", response_format={"type": "json_object"})) == {"answer": "You said: hello"}
    assert upstream.text("hello", response_format={"type": "text"}) == "You said: hello"
    assert upstream.text("hello", model="json") == '{"answer":"You said: hello"}'


@pytest.mark.parametrize(
    "schema", [{"$ref": "#/nowhere"}, {"properties": 5}, {"$ref": "#"}, {"type": "number", "minimum": "low"}]
)
def test_a_schema_that_is_none_is_400(upstream: Upstream, schema: dict[str, Any]) -> None:
    response = upstream.chat(
        "x", response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    )
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "invalid_json_schema"


def test_a_custom_tool_is_called_with_free_text(upstream: Upstream) -> None:
    tools = [*TOOLS, {"type": "custom", "custom": {"name": "patch"}}]
    asked = 'patch({"input": "+a longer text"})'
    message = upstream.chat(asked, tools=tools).json()["choices"][0]["message"]
    [call] = message["tool_calls"]
    assert (call["type"], call["custom"]) == ("custom", {"name": "patch", "input": "+a longer text"})
    streamed = chunks_of(upstream.chat(asked, tools=tools, stream=True).content)
    deltas = [call for chunk in streamed for call in chunk["choices"][0]["delta"].get("tool_calls", [])]
    assert "".join(delta["custom"]["input"] for delta in deltas) == "+a longer text"
    result = {"role": "tool", "tool_call_id": call["id"], "content": "done"}
    assert upstream.text([{"role": "user", "content": asked}, message, result], tools=tools) == "patch answered: done"
    chosen = {"type": "custom", "custom": {"name": "patch"}}
    [call] = upstream.chat("hi", tools=tools, tool_choice=chosen).json()["choices"][0]["message"]["tool_calls"]
    assert call["custom"]["name"] == "patch"


def test_only_tools_that_are_allowed_are_called(upstream: Upstream) -> None:
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named("get_time")]}}
    assert calls_of(upstream, "call get_weather", tool_choice=choice) == [("get_time", "{}")]


def test_a_user_of_more_than_64_characters_is_refused(upstream: Upstream) -> None:
    assert [upstream.chat("hi", user="u" * length).status_code for length in (64, 65)] == [200, 400]

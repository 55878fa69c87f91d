"""`POST /v1/responses` through HTTP, over a provider of every format: items, events, tools of every kind, reasoning
that comes back, and refusals by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import Response

from tests.support.providers_of_every_format import OTHER, PLACES, play
from tests.support.responses_calls import CITY, TOOLS, answer, ask, events_of, text_of
from tests.support.upstream import Caller

pytestmark = pytest.mark.django_db

ALONE = {"X-No-Fallback": "true"}


@pytest.fixture(params=PLACES)
def wire_format(request: pytest.FixtureRequest) -> str:
    """Each format."""
    return str(request.param)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
def test_words_are_answered_by_every_format(
    caller: Caller, wire_format: str, stream: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    play(caller, wire_format, monkeypatch, tmp_path)
    response = answer(
        caller, "hello [[sandbox usage=1000,200,300]]", stream=stream, instructions="Be brief.", metadata={"a": "1"}
    )
    assert (text_of(response), response["status"], response["model"]) == ("You said: hello", "completed", "echo")
    assert response["id"].startswith("resp_")
    assert (response["instructions"], response["metadata"], response["store"]) == ("Be brief.", {"a": "1"}, False)
    usage = response["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (1000, 200, 1200)
    assert usage["input_tokens_details"]["cached_tokens"] == 300
    assert usage["cost_usd_total"] > 0
    assert response["gateway"]["used_provider"] == OTHER


def test_a_streamed_text_is_told_in_the_whole_sequence_of_events(
    caller: Caller, wire_format: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    play(caller, wire_format, monkeypatch, tmp_path)
    told = events_of(ask(caller, "one two three four five six", stream=True))
    kinds = [event["type"].removeprefix("response.") for event in told]
    deltas = kinds.count("output_text.delta")
    assert deltas > 1
    assert kinds == [
        *("created", "in_progress", "output_item.added"),
        *(["content_part.added"] + ["output_text.delta"] * deltas),
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    assert {event["item_id"] for event in told if "item_id" in event} == {told[-1]["response"]["output"][0]["id"]}
    assert {event.get("output_index", 0) for event in told} == {0}
    said = "".join(event["delta"] for event in told if event["type"].endswith("text.delta"))
    assert said == "You said: one two three four five six"


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
def test_tools_of_every_kind_are_called_and_their_results_read(
    caller: Caller, wire_format: str, stream: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Custom tools and namespaces are native at a provider of the format, emulated at any other."""
    play(caller, wire_format, monkeypatch, tmp_path)
    native = wire_format == "responses"
    look = "look" if native else "weather__look"
    question = f'get_time({{"city": "Rome"}}) and patch({{"input": "a \\"b\\"\\nü"}}) and {look}({{"city": "Bern"}})'
    given: list[Any] = [{"role": "user", "content": question}]
    response = answer(caller, given, stream=stream, tools=TOOLS)
    calls = [item for item in response["output"] if item["type"] != "reasoning"]
    told = [(call["type"], call.get("namespace"), call["name"], value_of(call)) for call in calls]
    assert told == [
        ("function_call", None, "get_time", {"city": "Rome"}),
        ("custom_tool_call", None, "patch", 'a "b"\nü'),
        ("function_call", "weather", "look", {"city": "Bern"}),
    ]
    results = [
        {"type": f"{call['type']}_output", "call_id": call["call_id"], "output": f"{call['name']} is fine"}
        for call in calls
    ]
    final = answer(caller, [*given, *response["output"], *results], stream=stream, tools=TOOLS)
    assert text_of(final) == (
        f"get_time answered: get_time is fine; patch answered: patch is fine; {look} answered: look is fine"
    )


def value_of(call: dict[str, Any]) -> Any:
    return json.loads(call["arguments"]) if call["type"] == "function_call" else call["input"]


def test_thinking_comes_back_to_its_maker_as_it_was_and_to_nobody_else(
    caller: Caller, wire_format: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The sandbox refuses thinking that is not under its own signature: an answer shows that it accepted it."""
    play(caller, wire_format, monkeypatch, tmp_path)
    asked: dict[str, Any] = {"reasoning": {"effort": "low", "summary": "auto"}, "tools": TOOLS[:1]}
    given: list[Any] = [{"role": "user", "content": 'get_time({"city": "Rome"})'}]
    response = answer(caller, given, stream=True, **asked)
    kinds = [item["type"] for item in response["output"]]
    assert kinds[-1] == "function_call"
    result = {"type": "function_call_output", "call_id": response["output"][-1]["call_id"], "output": "noon"}
    final = answer(caller, [*given, *response["output"], result], stream=False, **asked)
    assert text_of(final) == "get_time answered: noon"
    sealed = [item for item in response["output"] if item.get("encrypted_content")]
    if not sealed:
        # In clear, or in the ids of calls.
        assert wire_format in ("openai", "vertex_openai", "google", "vertex")
        return
    assert all(item["encrypted_content"].startswith("gwr1.") for item in sealed)
    spoilt = {**sealed[0], "encrypted_content": sealed[0]["encrypted_content"][:-8] + "AAAAAAA="}
    refused = ask(caller, [*given, spoilt, *response["output"][1:], result], **asked)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input[1].encrypted_content")


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
def test_a_schema_is_answered_in_its_shape(
    caller: Caller, wire_format: str, stream: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    play(caller, wire_format, monkeypatch, tmp_path)
    schema = {**CITY, "additionalProperties": False}
    text = {"format": {"type": "json_schema", "name": "place", "schema": schema, "strict": True}}
    response = answer(caller, "Where is 'Zürich'?", stream=stream, text=text)
    assert json.loads(text_of(response)) == {"city": "Zürich"}
    assert response["text"]["format"]["name"] == "place"


def test_an_answer_cut_off_by_its_limit_is_incomplete(
    caller: Caller, wire_format: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    play(caller, wire_format, monkeypatch, tmp_path)
    for stream in (False, True):
        response = answer(caller, "word " * 40, stream=stream, max_output_tokens=16)
        assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
        assert response["output"][-1]["type"] == "message"


def test_a_stream_that_breaks_ends_with_an_error_and_a_failed_response(
    caller: Caller, wire_format: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    play(caller, wire_format, monkeypatch, tmp_path)
    response = ask(caller, "one two three four [[sandbox cut=middle]]", stream=True, headers=ALONE)
    told = events_of(response)
    assert [event["type"] for event in told[-2:]] == ["error", "response.failed"]
    assert told[-1]["response"]["status"] == "failed"
    assert told[-1]["response"]["error"]["code"] == "server_error"
    assert told[-2]["error"]["message"] == told[-1]["response"]["error"]["message"]
    Response.model_validate(told[-1]["response"])

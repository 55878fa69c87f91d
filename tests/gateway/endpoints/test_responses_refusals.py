"""`POST /v1/responses`: fields refused by name, or left out with a note, and tokens that are only counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from apps.catalog.models import ModelProvider
from apps.kernel.valkey import generation
from tests.support.providers_of_every_format import PLACES, play
from tests.support.responses_calls import TOOLS, ask, post, text_of
from tests.support.upstream import Caller, nothing_happened, settle_all

pytestmark = pytest.mark.django_db

ALONE = {"X-No-Fallback": "true"}


@pytest.fixture(params=PLACES)
def wire_format(request: pytest.FixtureRequest) -> str:
    """Each format."""
    return str(request.param)


REFUSED = [
    ({"input": None}, "input"),
    ({"input": []}, "input"),
    ({"input": [{"type": "x_item"}]}, "input[0].type"),
    ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
    ({"input": [{"role": "user", "content": [{"type": "x_part"}]}]}, "input[0].content[0].type"),
    ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"background": True}, "background"),
    ({"prompt": {"id": "pmpt_1"}}, "prompt"),
    ({"tools": [{"type": "x_tool"}]}, "tools[0].type"),
    ({"tools": [{"type": "custom", "name": "c", "format": {"type": "grammar"}}]}, "tools[0].format.definition"),
    ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "mcp"}]}]}, "tools[0].tools[0].type"),
    ({"tool_choice": "maybe"}, "tool_choice"),
    ({"tool_choice": {"type": "x"}}, "tool_choice.type"),
    ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
    ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
    ({"reasoning": {"summary": "long"}}, "reasoning.summary"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"temperature": 3}, "temperature"),
    ({"truncation": "some"}, "truncation"),
    ({"top_logprobs": 21}, "top_logprobs"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED, ids=[param for _, param in REFUSED])
def test_what_cannot_be_had_is_refused_by_its_name_and_asks_nobody(
    caller: Caller, fields: dict[str, Any], param: str
) -> None:
    tag = uuid4().hex
    asked = {"model": "sandbox/echo", "input": f"hi [[sandbox tag={tag}]]", **fields}
    response = post(caller, "/v1/responses", asked, {})
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert set(error) == {"message", "type", "param", "code"}
    assert caller.sent(tag) == []
    assert nothing_happened(caller)


def test_what_only_this_format_has_is_left_out_of_earlier_answers(
    caller: Caller, wire_format: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    play(caller, wire_format, monkeypatch, tmp_path)
    given = [
        {"role": "user", "content": "hi"},
        {"type": "item_reference", "id": "rs_1"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "and now?"},
    ]
    response = ask(caller, given)
    assert response.status_code == 200, response.content
    assert text_of(response.json()) == "You said: and now?"
    assert [one["param"].split(".")[0] for one in response.json()["gateway"]["warnings"]] == ["input"]


def test_a_tool_that_a_provider_runs_itself_is_refused_where_no_provider_has_it(caller: Caller) -> None:
    tools = [{"type": "code_interpreter", "container": {"type": "auto"}}]
    tag = uuid4().hex
    response = ask(caller, f"hi [[sandbox tag={tag}]]", model="sandbox/echo", tools=tools)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, "unsupported_feature", "tools[0]")
    assert "code_interpreter" in error["message"]
    assert caller.sent(tag) == []


def test_a_web_search_is_left_out_where_nobody_has_one_and_refused_where_it_is_all_that_is_asked_for(
    caller: Caller,
) -> None:
    search = {"type": "web_search"}
    asked: dict[str, Any] = {"model": "sandbox/echo", "tools": [*TOOLS[:1], search]}
    response = ask(caller, "hi", **asked)
    assert response.status_code == 200
    assert response.headers["x-gateway-loss"] == "tools[1]"
    assert [one["param"] for one in response.json()["gateway"]["warnings"]] == ["tools[1]"]
    for fields in ({**asked, "tools": [search]}, {**asked, "tool_choice": search}):
        assert ask(caller, "hi", **fields).json()["error"]["code"] == "unsupported_feature"
    strict = ask(caller, "hi", headers={"X-Strict": "true", **ALONE}, **asked)
    assert (strict.status_code, strict.json()["error"]["param"]) == (400, "tools[1]")


def test_input_tokens_are_counted_and_cost_nothing(caller: Caller) -> None:
    body = {"model": "sandbox/echo", "input": "hello there", "instructions": "Be brief.", "tools": TOOLS}
    response = post(caller, "/v1/responses/input_tokens", body, {})
    assert response.status_code == 200, response.content
    counted = response.json()
    assert (counted["object"], counted["input_tokens"] > 20) == ("response.input_tokens", True)
    assert settle_all() == 0


@pytest.mark.parametrize("fault", ["status=400 code=context_length_exceeded", "verbatim"])
def test_a_prompt_that_is_too_long_fails_in_the_stream_as_at_openai(caller: Caller, fault: str) -> None:
    if fault == "verbatim":
        ModelProvider.objects.filter(model_id="echo").update(context_length=5)
        generation.bump(generation.CATALOG)
    asked = f"too long a prompt for a model that reads next to nothing [[sandbox {fault}]]"
    streamed = ask(caller, asked, model="sandbox/echo", stream=True, headers=ALONE)
    assert (streamed.status_code, streamed["content-type"]) == (200, "text/event-stream; charset=utf-8")
    lines = streamed.content.decode().splitlines()
    told = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    assert [event["type"] for event in told] == ["response.created", "response.in_progress", "error", "response.failed"]
    failed = told[-1]["response"]
    assert (failed["status"], failed["error"]["code"], failed["output"]) == ("failed", "context_length_exceeded", [])
    plain = ask(caller, asked, model="sandbox/echo", headers=ALONE)
    assert (plain.status_code, plain.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert plain.json()["error"]["message"] == failed["error"]["message"]
    # Every other refusal has the status for it.
    assert ask(caller, "hi", model="sandbox/no-such-model", stream=True).status_code == 400

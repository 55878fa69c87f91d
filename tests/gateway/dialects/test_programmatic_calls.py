"""Calls that programs make, and calls that an answer does not wait for: kept in their own format, told elsewhere."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects.chat import anthropic, google, openai, responses
from apps.kernel.errors import InvalidRequest

PROGRAM = {"type": "program", "caller_id": "prog_1"}
DIRECT = {"type": "direct"}
CODE = {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}


def of_responses(caller: Any, kind: str = "function_call", **fields: Any) -> Chat:
    """Return a Responses client's chat with a call and its output."""
    text = {"arguments": "{}"} if kind == "function_call" else {"input": "x"}
    call = {"type": kind, "call_id": "call_1", "name": "look", **text, "caller": caller, **fields}
    output = {"type": f"{kind}_output", "call_id": "call_1", "output": "fine", "caller": caller}
    items = [{"role": "user", "content": "?"}, call, output]
    tool = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
    return responses.read_request(json.dumps({"model": "m", "input": items, "tools": [tool]}).encode())


def of_messages(caller: Any) -> Chat:
    """Return an Anthropic client's chat with a call and its result."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}, "caller": caller}
    turns = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "fine"}]},
    ]
    tool = {"name": "look", "input_schema": {"type": "object", "properties": {}}}
    body = {"model": "m", "max_tokens": 9, "messages": turns, "tools": [tool]}
    return anthropic.read_request(json.dumps(body).encode())


def write(chat: Chat, dialect: ModuleType) -> tuple[Any, list[str]]:
    """Return the request to a provider, and the fields that are reported as left out."""
    target = Target(model_name="m", facts={}, dropped_fields=[])
    body = json.loads(dialect.write_request(chat, target))
    return body, [dropped.param for dropped in target.dropped_fields]


@pytest.mark.parametrize("kind", ["function_call", "custom_tool_call"])
def test_a_provider_of_responses_gets_who_called_with_calls_and_outputs(kind: str) -> None:
    body, told = write(of_responses(PROGRAM, kind, **{"async": True, "namespace": "n"}), responses)
    call, output = body["input"][1:]
    assert (call["caller"], call["async"], call["namespace"]) == (PROGRAM, True, "n")
    assert output == {"type": f"{kind}_output", "call_id": "call_1", "caller": PROGRAM, "output": "fine"}
    assert told == []


@pytest.mark.parametrize("dialect", [anthropic, openai, google])
def test_another_format_is_told_to_have_no_programs_that_call(dialect: ModuleType) -> None:
    body, told = write(of_responses(PROGRAM, **{"async": True}), dialect)
    assert told == ["input.caller", "input.async"]
    assert "prog_1" not in json.dumps(body)


@pytest.mark.parametrize("dialect", [anthropic, openai, google])
def test_a_call_of_the_model_itself_loses_nothing(dialect: ModuleType) -> None:
    _, told = write(of_responses(DIRECT, **{"async": False}), dialect)
    assert told == []


def test_a_provider_of_anthropics_format_gets_the_caller_that_it_named() -> None:
    body, told = write(of_messages(CODE), anthropic)
    assert body["messages"][1]["content"][0]["caller"] == CODE
    assert told == []


@pytest.mark.parametrize("dialect", [responses, openai, google])
def test_anthropics_programs_are_told_elsewhere(dialect: ModuleType) -> None:
    place = "messages.content.caller"
    body, told = write(of_messages(CODE), dialect)
    assert told[0] == place
    assert "srvtoolu_1" not in json.dumps(body)
    assert place not in write(of_messages(DIRECT), dialect)[1]


@pytest.mark.parametrize(("field", "value"), [("caller", "program"), ("async", "yes")])
def test_who_called_is_read_or_refused_by_name(field: str, value: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        of_responses(**{"caller": DIRECT, field: value})
    assert refused.value.param == f"input[1].{field}"

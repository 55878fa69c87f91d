"""Content of log rows: the client's request in its own format, as far as retention allows (section 2.12)."""

from __future__ import annotations

from typing import Any

import pytest

from apps.organizations.models import Organization
from tests.support.anthropic_requests import ask
from tests.support.guardrails_in_force import forbid, guard
from tests.support.upstream import Caller, settle_all

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
# With a field that only its own format knows.
FUNCTION = {"type": "function", "function": {"name": "find", "description": "Find", "parameters": SCHEMA, "x": 1}}
CUSTOM = {"type": "custom", "custom": {"name": "sql", "format": {"type": "text"}}}
FORM = {
    "type": "json_schema",
    "json_schema": {"name": "place", "description": "A place", "strict": True, "schema": SCHEMA},
}
ALLOWED = {
    "type": "allowed_tools",
    "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "find"}}]},
}
ONE = {"type": "function", "function": {"name": "find"}}
FIND = {"name": "find", "description": "Find", "input_schema": SCHEMA, "strict": True}


def keep(caller: Caller, level: str) -> None:
    """Have the caller's organization keep so much."""
    Organization.objects.filter(pk=caller.organization_id).update(retention_level=level)


def logged(caller: Caller) -> dict[str, Any]:
    """Return the entry of the only request, as `GET /logs` shows it."""
    settle_all()
    [entry] = caller.client.get("/logs", headers={"x-api-key": caller.token}).json()["logs"]
    return dict(entry)


@pytest.mark.parametrize("choice", ["auto", "required", "none", ONE], ids=str)
def test_tools_choice_and_form_are_not_logged_in_the_gateways_own_words(caller: Caller, choice: Any) -> None:
    keep(caller, "retain")
    answer = caller.chat(tools=[FUNCTION, CUSTOM], tool_choice=choice, response_format=FORM, model="sandbox/tools")
    assert answer.status_code == 200, answer.content
    entry = logged(caller)
    assert (entry["tools"], entry["toolChoice"], entry["responseFormat"]) == ([FUNCTION, CUSTOM], choice, FORM)
    assert entry["messages"] == [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize("form", [{"type": "text"}, {"type": "json_object"}], ids=str)
def test_a_plain_form_is_logged_as_sent(caller: Caller, form: Any) -> None:
    keep(caller, "retain")
    assert caller.chat("JSON, please", response_format=form).status_code == 200
    assert logged(caller)["responseFormat"] == form


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "any"},
        {"type": "auto", "disable_parallel_tool_use": True},
        {"type": "tool", "name": "find"},
        {"type": "none"},
    ],
    ids=str,
)
@pytest.mark.parametrize("level", ["retain", "metadata"])
def test_a_choice_is_logged_in_the_format_that_messages_have(caller: Caller, level: str, choice: Any) -> None:
    keep(caller, level)
    assert ask(caller, tools=[FIND], tool_choice=choice, model="sandbox/tools").status_code == 200
    entry = logged(caller)
    assert entry["toolChoice"] == choice
    assert entry["tools"] == ([FIND] if level == "retain" else ["find"])


def test_a_conversation_in_messages_is_logged_whole(caller: Caller) -> None:
    keep(caller, "retain")
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": "sunny", "is_error": False}
    turns = [
        {"role": "user", "content": "weather?"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "call_1", "name": "find", "input": {"city": "x"}}],
        },
        {"role": "user", "content": [result]},
    ]
    form = {"type": "json_schema", "schema": {**SCHEMA, "additionalProperties": False}}
    answer = ask(caller, messages=turns, system="Be kind", tools=[FIND], output_config={"format": form})
    assert answer.status_code == 200, answer.content
    entry = logged(caller)
    assert entry["messages"] == [{"role": "system", "content": "Be kind"}, *turns]
    assert (entry["toolResults"], entry["responseFormat"]) == ([result], form)


def test_what_tools_answered_is_logged_as_sent(caller: Caller) -> None:
    keep(caller, "retain")
    call = {"id": "call_1", "type": "function", "function": {"name": "find", "arguments": '{"city": "x"}'}}
    turns = [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ]
    assert caller.chat(messages=turns, tools=[FUNCTION]).status_code == 200
    entry = logged(caller)
    assert (entry["messages"], entry["toolResults"]) == (turns, [turns[2]])


@pytest.mark.parametrize(("choice", "told"), [("required", "required"), ({**ONE, "note": "my secret"}, ONE)], ids=str)
def test_without_content_a_choice_has_names_and_nothing_else(caller: Caller, choice: Any, told: Any) -> None:
    keep(caller, "metadata")
    answer = caller.chat(tools=[FUNCTION], tool_choice=choice, response_format=FORM, model="sandbox/tools")
    assert answer.status_code == 200, answer.content
    entry = logged(caller)
    assert (entry["tools"], entry["toolChoice"]) == (["find"], told)
    assert entry["responseFormat"] == {"type": "json_schema"}
    assert (entry["messages"], entry["toolResults"]) == (None, None)


@pytest.mark.parametrize("level", ["retain", "metadata"])
def test_what_the_provider_refuses_is_logged_as_sent_too(caller: Caller, level: str) -> None:
    keep(caller, level)
    refused = caller.chat("hi [[sandbox status=400]]", tools=[FUNCTION], tool_choice=ALLOWED, model="sandbox/tools")
    assert refused.status_code == 400
    entry = logged(caller)
    assert (entry["toolChoice"], entry["tools"]) == (ALLOWED, [FUNCTION] if level == "retain" else ["find"])


def test_nothing_is_logged_of_it_where_nothing_may_be_kept(caller: Caller) -> None:
    keep(caller, "none")
    assert (
        caller.chat(tools=[FUNCTION], tool_choice=ONE, response_format=FORM, model="sandbox/tools").status_code == 200
    )
    entry = logged(caller)
    assert [entry[name] for name in ("messages", "tools", "toolChoice", "responseFormat")] == [None] * 4


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_what_a_guardrail_masked_is_logged_masked_and_in_the_clients_format(caller: Caller, path: str) -> None:
    keep(caller, "retain")
    guard(caller)
    forbid(caller, "hushhush", action="redact")
    described = {"type": "object", "properties": {"city": {"type": "string", "description": "not hushhush"}}}
    masked = {"type": "object", "properties": {"city": {"type": "string", "description": "not [TERM_1]"}}}
    if path == "/v1/messages":
        tool = {**FIND, "input_schema": described}
        choice: Any = {"type": "auto", "disable_parallel_tool_use": True}
        answer = ask(caller, "say hushhush", system="Be kind", tools=[tool], tool_choice=choice)
        told, first = {**FIND, "input_schema": masked}, [{"role": "system", "content": "Be kind"}]
    else:
        tool = {"type": "function", "function": {"name": "find", "description": "Find", "parameters": described}}
        choice, first = ONE, []
        told = {"type": "function", "function": {"name": "find", "description": "Find", "parameters": masked}}
        answer = caller.chat("say hushhush", tools=[tool], tool_choice=choice, response_format=FORM)
    assert answer.status_code == 200, answer.content
    entry = logged(caller)
    assert "hushhush" not in str(entry)
    assert entry["messages"] == [*first, {"role": "user", "content": "say [TERM_1]"}]
    assert (entry["tools"], entry["toolChoice"]) == ([told], choice)
    assert entry["responseFormat"] == (None if path == "/v1/messages" else FORM)


def test_functions_are_logged_as_the_tools_that_they_are(caller: Caller) -> None:
    keep(caller, "retain")
    function = {"name": "find", "description": "Find", "parameters": SCHEMA}
    assert caller.chat(functions=[function], function_call={"name": "find"}, model="sandbox/tools").status_code == 200
    entry = logged(caller)
    assert (entry["tools"], entry["toolChoice"]) == ([{"type": "function", "function": function}], ONE)

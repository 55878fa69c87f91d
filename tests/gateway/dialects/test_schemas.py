"""Schemas in the parts of JSON Schema that providers take, and the tool that takes one where they take none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic.lib._parse._transform import transform_schema

from apps.gateway.canonical.chat import Chat, FunctionTool, Message, ResponseFormat, Target, Text, ToolChoice
from apps.gateway.canonical.events import Finished, ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStarted
from apps.gateway.dialects.adapting.schemas import (
    UnsupportedSchema,
    add_structured_output_tool,
    close_schema,
    google_schema,
    object_root,
    object_schema,
)
from apps.gateway.dialects.adapting.undo_rewrites import undo_rewrites
from apps.gateway.dialects.chat import anthropic, google, openai

PERSON: dict[str, Any] = {
    "$defs": {"Pet": {"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "integer"}}}},
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "format": "email"},
        "age": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]},
        "pet": {"$ref": "#/$defs/Pet"},
        "tags": {"type": "array", "items": {"type": "string", "pattern": "^a"}, "maxItems": 3},
        "kind": {"const": "person"},
    },
    "required": ["name"],
}


def test_anthropics_part_is_what_its_own_client_makes_but_for_words_in_descriptions() -> None:
    schema, left_out = close_schema(PERSON)
    theirs = transform_schema(json.loads(json.dumps(PERSON)))
    assert left_out == ["minLength", "minimum", "pattern", "maxItems"]
    assert schema == without(theirs, "description")
    assert list(schema["$defs"]["Pet"]["properties"]) == ["z", "a"]
    assert list(schema["properties"]) == ["name", "age", "pet", "tags", "kind"]


def without(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: without(inner, name) for key, inner in value.items() if key != name}
    return [without(inner, name) for inner in value] if isinstance(value, list) else value


def test_several_types_become_a_choice_among_schemas() -> None:
    assert close_schema({"type": ["string", "null"], "enum": ["a", None], "description": "D"})[0] == {
        "description": "D",
        "anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}],
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": {"T": {"type": "object", "properties": {"t": {"$ref": "#/$defs/T"}}}}, "$ref": "#/$defs/T"},
        {"type": "object", "properties": {"self": {"$ref": "#"}}},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "additionalProperties": True},
        {"description": "anything"},
        {"type": "array", "items": True},
    ],
)
def test_what_a_grammar_cannot_say_is_taken_by_a_tool(schema: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedSchema):
        close_schema(schema)
    target = Target(model_name="m", facts={})
    chat = asked(schema)
    chat.dialect = "openai"
    wire = json.loads(anthropic.write_request(chat, target))
    assert (wire["tool_choice"], "output_config" in wire) == ({"type": "tool", "name": "final_answer"}, False)
    assert target.dropped_fields == []


def test_google_is_told_of_constants_as_of_lists_and_nothing_stands_beside_a_reference() -> None:
    schema, unbound = google_schema(
        {
            "$schema": "x",
            "$defs": {"P": {"type": "string", "pattern": "^a"}},
            "type": "object",
            "properties": {"k": {"const": 3}, "p": {"$ref": "#/$defs/P", "description": "Which"}},
        }
    )
    assert schema == {
        "$defs": {"P": {"type": "string", "pattern": "^a"}},
        "type": "object",
        "properties": {"k": {"enum": [3]}, "p": {"description": "Which", "anyOf": [{"$ref": "#/$defs/P"}]}},
    }
    assert unbound == ["pattern"]


def test_parameters_are_objects_or_nothing_at_all() -> None:
    assert object_root(None) == object_root({}) == {"type": "object", "properties": {}}
    assert object_root({"anyOf": []}) == {"type": "object", "anyOf": []}
    with pytest.raises(UnsupportedSchema):
        object_root({"type": "string"})


def asked(schema: dict[str, Any] | None, **fields: Any) -> Chat:
    form = ResponseFormat(kind="json_schema", name="answer", schema=schema)
    return Chat(
        model="m", messages=[Message(role="user", parts=[Text(text="?")])], response_format=form, max_tokens=9, **fields
    )


def test_a_schema_that_is_no_object_is_wrapped_and_its_references_follow() -> None:
    schema = {
        "$defs": {"A": {"type": "string"}},
        "type": "array",
        "items": {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#"}]},
    }
    assert object_schema(schema) == (
        {
            "type": "object",
            "properties": {
                "value": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/properties/value"}]}}
            },
            "required": ["value"],
            "additionalProperties": False,
            "$defs": {"A": {"type": "string"}},
        },
        True,
    )


TOOL = FunctionTool(name="final_answer", parameters={"type": "object"})


@pytest.mark.parametrize(
    ("fields", "choice"),
    [
        ({}, ToolChoice(mode="named", name="final_answer")),
        ({"tools": [TOOL]}, ToolChoice(mode="required")),
        ({"tools": [TOOL], "tool_choice": ToolChoice(mode="none")}, ToolChoice(mode="named", name="final_answer_")),
        (
            {"tools": [TOOL], "tool_choice": ToolChoice(mode="auto", allowed=("final_answer",))},
            ToolChoice(mode="required", allowed=("final_answer", "final_answer_")),
        ),
    ],
)
def test_the_model_answers_by_the_tool_or_calls_one_of_the_clients(fields: dict[str, Any], choice: ToolChoice) -> None:
    target = Target(model_name="m", facts={})
    chat = add_structured_output_tool(asked({"type": "object"}, **fields), target)
    assert chat.tool_choice == choice
    assert chat.response_format is None
    assert target.rewrites.hidden_tool == ("final_answer_" if fields else "final_answer")


def test_a_client_that_insists_on_a_call_gets_one() -> None:
    target = Target(model_name="m", facts={})
    chat = add_structured_output_tool(asked({}, tools=[TOOL], tool_choice=ToolChoice(mode="required")), target)
    assert (chat.tools, target.rewrites.hidden_tool) == ([TOOL], None)


def hidden(**rewrites: Any) -> Target:
    target = Target(model_name="m", facts={})
    target.rewrites.hidden_tool = "final_answer"
    for name, value in rewrites.items():
        setattr(target.rewrites, name, value)
    return target


def test_the_hidden_call_is_the_text_piece_by_piece_and_what_was_said_around_it_is_not() -> None:
    events = [
        ReasoningDelta(text="Hm"),
        TextDelta(text="Here you are:"),
        ToolCallStarted(index=0, id="c", name="final_answer"),
        ToolCallDelta(index=0, arguments='{"n": 1'),
        ToolCallDelta(index=0, arguments="e400}"),
        ToolCallStarted(index=1, id="d", name="final_answer"),
        ToolCallDelta(index=1, arguments="{}"),
        Finished(reason="tool_calls", native="tool_use"),
    ]
    assert list(undo_rewrites(events, hidden())) == [
        ReasoningDelta(text="Hm"),
        TextDelta(text='{"n": 1'),
        TextDelta(text="e400}"),
        Finished(reason="stop", native="tool_use"),
    ]


def test_a_wrapped_answer_is_unwrapped_with_all_of_its_digits() -> None:
    events = [
        ToolCallStarted(index=0, id="c", name="final_answer"),
        ToolCallDelta(index=0, arguments='{"value": [1.10, 12345678901234567890'),
        ToolCallDelta(index=0, arguments="]}"),
        Finished(reason="tool_calls"),
    ]
    assert list(undo_rewrites(events, hidden(wrapped_in_value=True))) == [
        TextDelta(text="[1.10, 12345678901234567890]"),
        Finished(reason="stop"),
    ]


def test_a_call_of_the_clients_stays_one_and_gets_its_name_back() -> None:
    events = [
        ToolCallStarted(index=0, id="c", name="f__1"),
        ToolCallDelta(index=0, arguments="{}"),
        Finished(reason="tool_calls"),
    ]
    assert list(undo_rewrites(events, hidden(tool_names={"f__1": "f.1"}))) == [
        ToolCallStarted(index=0, id="c", name="f.1"),
        ToolCallDelta(index=0, arguments="{}"),
        Finished(reason="tool_calls"),
    ]


def test_words_of_a_model_that_did_not_call_the_tool_are_the_answer() -> None:
    events = [TextDelta(text='{"a"'), TextDelta(text=": 1}"), Finished(reason="stop")]
    assert list(undo_rewrites(events, hidden())) == events


@pytest.mark.parametrize("dialect", [openai, anthropic, google])
def test_no_thinking_stands_beside_a_call_that_the_model_is_made_to_make(dialect: Any) -> None:
    chat = openai.read_request(
        json.dumps(
            {
                "model": "m",
                "max_tokens": 5_000,
                "messages": [{"role": "user", "content": "?"}],
                "reasoning_effort": "high",
                "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}},
            }
        ).encode()
    )
    target = Target(model_name="m", facts={"structured_outputs": "tool", "reasoning_efforts": ["high"]})
    wire = json.loads(dialect.write_request(chat, target))
    assert ("thinking" in wire, [loss.param for loss in target.dropped_fields]) == (
        (False, ["reasoning_effort"]) if dialect is anthropic else (False, [])
    )

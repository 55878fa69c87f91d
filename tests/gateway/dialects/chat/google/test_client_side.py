"""Google's format towards clients, where no case says it: carriers of thinking, calls without ids, order, names."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import pytest

from apps.gateway.canonical.chat import (
    Chat,
    FunctionTool,
    Image,
    OpaqueTool,
    Reasoning,
    Target,
    Text,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from apps.gateway.canonical.events import (
    Annotated,
    Event,
    Failed,
    Finished,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Waiting,
    fold,
)
from apps.gateway.dialects.chat import anthropic, google, openai
from apps.gateway.dialects.chat.google.client import (
    MAX_BYTES,
    is_carrier,
    read_carrier,
    write_carrier,
)
from apps.gateway.dialects.chat.google.client.read_request import json_schema_of
from apps.gateway.dialects.chat.google.client.write_reply import write_array
from apps.gateway.dialects.chat.google.wire import laid_out
from apps.kernel.errors import AllProvidersFailed, InvalidRequest
from tests.gateway.dialects.test_laws import SUMMARY

CLAUDES = "anthropic-claude-v1"
THOUGHT = ReasoningDelta(text="Hm, ", signature="c2ln+/==", format=CLAUDES)
SEALED = ReasoningDelta(data="b3BhcXVl", id="rs_1", format="openai-responses-v1@azure", block=1)
CALLS: list[Event] = [
    ToolCallStarted(index=0, id="call_1", name="f"),
    ToolCallDelta(index=0, arguments='{"a":'),
    ToolCallStarted(index=1, id="call_2", name="g"),
    ToolCallDelta(index=1, arguments="{}"),
    ToolCallDelta(index=0, arguments="1}"),
    Finished(reason="tool_calls"),
]


def asked(**fields: Any) -> Chat:
    """Return what a client asks."""
    body = {"contents": [{"parts": [{"text": "?"}]}], **fields}
    return google.read_request(json.dumps(body).encode(), "m", stream=True)


SHOWN = asked(generationConfig={"thinkingConfig": {"includeThoughts": True}})


def parts_of(events: list[Event], chat: Chat = SHOWN) -> list[dict[str, Any]]:
    """Return the parts of a streamed answer."""
    written = b"".join(write_array([Started(id="r", model="m"), *events, SUMMARY], chat))
    return [part for chunk in json.loads(written) for part in chunk["candidates"][0]["content"]["parts"]]


def returned(parts: list[dict[str, Any]]) -> list[Any]:
    """Return the canonical parts of an answer that a client sends back."""
    return asked(contents=[{"role": "model", "parts": parts}]).messages[0].parts


def test_other_makers_thinking_rides_on_the_first_call_and_comes_back_once() -> None:
    parts = parts_of([THOUGHT, SEALED, *CALLS])
    assert parts[0] == {"text": "Hm, ", "thought": True}
    first, second = parts[1:3]
    assert first["functionCall"] == {"id": "call_1", "name": "f", "args": {"a": 1}}
    assert second == {"functionCall": {"id": "call_2", "name": "g", "args": {}}}
    expected = [
        Reasoning(text="Hm, ", signature="c2ln+/==", format=CLAUDES),
        Reasoning(data="b3BhcXVl", id="rs_1", format="openai-responses-v1@azure"),
        ToolCall(id="call_1", name="f", arguments='{"a":1}'),
        ToolCall(id="call_2", name="g", arguments="{}"),
    ]
    assert returned(parts) == expected
    assert returned([first, second]) == expected
    # Some clients decode base64 and encode it in the other alphabet, without padding.
    raw = first["thoughtSignature"].replace("+", "-").replace("/", "_")
    again = urlsafe_b64encode(urlsafe_b64decode(raw)).decode().rstrip("=")
    assert returned([{**first, "thoughtSignature": again}, second]) == expected


def test_thinking_that_was_not_asked_for_is_not_shown_but_comes_back() -> None:
    parts = parts_of([THOUGHT, TextDelta(text="Yes."), Finished(reason="stop")], asked())
    assert [part["text"] for part in parts] == ["Yes.", ""]
    assert returned(parts)[1] == Reasoning(text="Hm, ", signature="c2ln+/==", format=CLAUDES)


def test_a_carrier_brings_anthropic_its_thinking_in_its_words() -> None:
    parts = parts_of([THOUGHT, *CALLS[:2], CALLS[4], CALLS[5]])
    chat = asked(
        contents=[
            {"parts": [{"text": "?"}]},
            {"role": "model", "parts": parts[1:2]},
            {"parts": [{"functionResponse": {"name": "f", "response": {"output": "ok"}}}]},
        ],
        tools=[{"functionDeclarations": [{"name": "f"}]}],
        generationConfig={"thinkingConfig": {"thinkingBudget": 2000}, "maxOutputTokens": 4000},
    )
    assert chat.source is None
    target = Target(model_name="claude", facts={"reasoning_budget": {}}, max_output=8000)
    sent = json.loads(anthropic.write_request(chat, target))
    assert sent["messages"][1]["content"][0] == {"type": "thinking", "thinking": "Hm, ", "signature": "c2ln+/=="}
    assert sent["thinking"] == {"type": "enabled", "budget_tokens": 2000}
    assert target.dropped_fields == []


@pytest.mark.parametrize("end", ["", "AAAA", "eyJ4Ijox", "W1tbW1tb"])
def test_a_changed_carrier_is_no_thinking_and_no_failure(end: str) -> None:
    carrier = write_carrier([THOUGHT])
    assert carrier is not None
    assert read_carrier(carrier) == [Reasoning(text="Hm, ", signature="c2ln+/==", format=CLAUDES)]
    changed = carrier[:32] + end
    assert is_carrier(changed)
    assert read_carrier(changed) is None
    part = {"functionCall": {"id": "c", "name": "f", "args": {}}, "thoughtSignature": changed}
    (call,) = returned([part])
    assert (call.id, call.name) == ("c", "f")


def test_more_thinking_than_is_carried_is_left_out() -> None:
    assert write_carrier([ReasoningDelta(text="x" * MAX_BYTES, signature="s", format=CLAUDES)]) is None
    assert write_carrier([ReasoningDelta(text="words alone")]) is None


def test_results_without_ids_answer_calls_by_name_and_order() -> None:
    call = {"functionCall": {"name": "f", "args": {}}}
    named = {"functionCall": {"id": "k", "name": "f", "args": {}}}

    def result(name: str, **fields: str) -> dict[str, Any]:
        return {"functionResponse": {"name": name, "response": {"output": name}, **fields}}

    chat = asked(
        contents=[
            {"role": "model", "parts": [call, named, call]},
            {"parts": [result("f", id="k"), result("f"), result("f"), result("g")]},
            {"role": "model", "parts": [call]},
            {"parts": [result("f", id="elsewhere")]},
        ]
    )
    ids = [part.call_id for message in chat.messages for part in message.parts if isinstance(part, ToolResult)]
    assert ids == ["k", "call_0_0", "call_0_2", "call_of_g", "call_5_0"]


@pytest.mark.parametrize(
    ("response", "text", "is_error"),
    [
        ({"output": "Sun"}, "Sun", False),
        ({"result": {"a": 1}}, '{"a":1}', False),
        ({"error": "no"}, "no", True),
        ({"name": "f", "content": "Sun"}, "Sun", False),
        ({"a": 1, "b": "x"}, '{"a":1,"b":"x"}', False),
        ({}, "{}", False),
    ],
)
def test_a_functions_answer_is_its_words_where_it_is_nothing_else(
    response: dict[str, Any], text: str, is_error: bool
) -> None:
    chat = asked(contents=[{"role": "function", "parts": [{"functionResponse": {"name": "f", "response": response}}]}])
    (result,) = chat.messages[0].parts
    assert isinstance(result, ToolResult)
    assert (result.parts, result.is_error) == ([Text(text=text)], is_error)


def test_urlsafe_base64_becomes_what_every_provider_takes() -> None:
    chat = asked(contents=[{"parts": [{"inlineData": {"mimeType": "image/png", "data": "-_-_aA"}}]}])
    assert chat.messages[0].parts == [Image(url="data:image/png;base64,+/+/aA==")]


def test_googles_schema_becomes_json_schema() -> None:
    schema = {
        "type": "OBJECT",
        "properties": {
            "b": {"type": "ARRAY", "minItems": "1", "items": {"type": "STRING", "format": "enum", "enum": ["x"]}},
            "a": {"type": "STRING", "nullable": True, "enum": ["y"]},
            "c": {"anyOf": [{"type": "INTEGER"}], "nullable": True},
        },
        "propertyOrdering": ["a", "b"],
    }
    converted = json_schema_of(schema)
    assert list(converted["properties"]) == ["a", "b", "c"]
    assert converted == {
        "type": "object",
        "properties": {
            "a": {"type": ["string", "null"], "enum": ["y", None]},
            "b": {"type": "array", "minItems": 1, "items": {"type": "string", "enum": ["x"]}},
            "c": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        },
    }


def test_a_json_schema_is_put_in_googles_order_without_googles_keyword() -> None:
    inner = {
        "type": "object",
        "properties": {"b": {}, "propertyOrdering": {}},
        "propertyOrdering": ["propertyOrdering"],
    }
    schema = {
        "type": "object",
        "properties": {"y": {"enum": [{"propertyOrdering": 1}]}, "x": {"anyOf": [inner]}},
        "propertyOrdering": ["x", "y", "none"],
    }
    function = {"name": "f", "parametersJsonSchema": schema}
    form = {"responseMimeType": "application/json", "responseJsonSchema": schema}
    chat = asked(tools=[{"functionDeclarations": [function]}], generationConfig=form)
    sent = (
        '{"type": "object", "properties": {"x": {"anyOf": [{"type": "object", "properties": {"propertyOrdering": {}, '
        '"b": {}}}]}, "y": {"enum": [{"propertyOrdering": 1}]}}}'
    )
    (tool,) = chat.tools or []
    assert isinstance(tool, FunctionTool)
    assert json.dumps(tool.parameters) == sent
    assert chat.response_format is not None
    assert json.dumps(chat.response_format.schema) == sent
    # Google itself gets what the client wrote.
    wire = google.write_request(chat, Target(model_name="m", facts={}))
    assert json.loads(wire)["generationConfig"]["responseJsonSchema"] == schema


@pytest.mark.parametrize(
    ("config", "choice"),
    [
        ({"mode": "ANY", "allowedFunctionNames": ["f"]}, ToolChoice(mode="named", name="f")),
        ({"mode": "ANY"}, ToolChoice(mode="required")),
        ({"mode": "AUTO"}, ToolChoice(mode="auto")),
        ({"mode": "NONE", "allowedFunctionNames": ["f"]}, ToolChoice(mode="none")),
        ({"mode": "VALIDATED", "allowedFunctionNames": ["f"]}, ToolChoice(mode="auto", allowed=("f",))),
        ({}, None),
    ],
)
def test_every_mode_of_calling_functions_is_understood(config: dict[str, Any], choice: ToolChoice | None) -> None:
    assert asked(toolConfig={"functionCallingConfig": config}).tool_choice == choice


@pytest.mark.parametrize("dialect", [openai, anthropic])
@pytest.mark.parametrize("fields", [{"tools": [{"urlContext": {}}]}, {"cachedContent": "cachedContents/1"}])
def test_what_only_google_has_is_refused_by_name_elsewhere(dialect: Any, fields: dict[str, Any]) -> None:
    chat = asked(**fields)
    assert chat.tools in (None, [OpaqueTool(dialect="google", data={"urlContext": {}})])
    with pytest.raises(InvalidRequest, match=r"urlContext|cachedContent"):
        dialect.write_request(chat, Target(model_name="m", facts={}))


def test_citations_are_grounding_in_bytes() -> None:
    page = {"url": "https://x.example", "title": "X", "start_index": 3, "end_index": 7}
    events: list[Event] = [
        TextDelta(text="Žo: Jaše"),
        Annotated(annotation={"type": "url_citation", "url_citation": page}),
        Finished(reason="stop"),
    ]
    whole = json.loads(google.write_reply(fold([Started(), *events]), SUMMARY, SHOWN))
    assert whole["candidates"][0]["groundingMetadata"] == {
        "groundingChunks": [{"web": {"uri": "https://x.example", "title": "X"}}],
        "groundingSupports": [
            {"segment": {"startIndex": 4, "endIndex": 9, "text": " Jaš"}, "groundingChunkIndices": [0]}
        ],
    }


def test_silence_is_no_event_and_a_failure_ends_either_kind_of_stream() -> None:
    events: list[Event] = [
        Started(id="r", model="m"),
        Waiting(),
        TextDelta(text="a"),
        Failed(error=AllProvidersFailed("gone")),
        TextDelta(text="b"),
    ]
    pieces = list(google.write_events(events, SHOWN))
    assert pieces[0] == b"\r\n"
    assert len(pieces) == 3
    assert json.loads(pieces[2].removeprefix(b"data: "))["error"]["status"] == "UNAVAILABLE"
    first, last = json.loads(b"".join(write_array(events, SHOWN)))
    assert (first["candidates"][0]["content"]["parts"], last["error"]["code"]) == ([{"text": "a"}], 502)


def test_a_layout_of_another_answer_than_this_loses_nothing() -> None:
    own = {"executableCode": {"code": "1"}}
    layout = [{"text": 3}, {"part": own}, {"text": 2}]
    assert laid_out([{"text": "abcde"}], layout) == [{"text": "abc"}, own, {"text": "de"}]
    # A guardrail has masked something: the text has another length now.
    assert laid_out([{"text": "ab***de"}], layout) == [own, {"text": "ab***de"}]

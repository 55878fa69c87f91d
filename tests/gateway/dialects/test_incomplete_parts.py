"""Calls with no arguments, citations without a place, forms that describe themselves: none of it gets lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from apps.gateway.canonical.chat import Chat, Message, Target, Text
from apps.gateway.canonical.events import Annotated, Event, Finished, Started, TextDelta, fold
from apps.gateway.dialects.chat import anthropic, google, openai, responses
from tests.gateway.dialects.test_laws import SUMMARY

QUESTION = Chat(model="m", messages=[Message(role="user", parts=[Text(text="?")])])


def from_openai(arguments: Any) -> list[Event]:
    """Return the events of an answer of chat completions with one call."""
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    return list(openai.read_reply(json.dumps({"id": "x", "model": "m", "choices": [choice]}).encode()))


def from_anthropic(arguments: Any) -> list[Event]:
    """Return the events of an answer of Anthropic's with one call."""
    block = {"type": "tool_use", "id": "call_1", "name": "f", "input": arguments}
    message = {"id": "x", "type": "message", "role": "assistant", "model": "m", "content": [block]}
    ends = {"stop_reason": "tool_use", "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    return list(anthropic.read_reply(json.dumps({**message, **ends}).encode()))


def from_responses(arguments: Any) -> list[Event]:
    """Return the events of an answer of the Responses format with one call."""
    item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": arguments}
    body = {"id": "r", "object": "response", "status": "completed", "model": "m", "output": [item]}
    return list(responses.read_reply(json.dumps(body).encode()))


@pytest.mark.parametrize("arguments", [None, "null"])
@pytest.mark.parametrize("read", [from_openai, from_anthropic, from_responses])
def test_a_call_with_nothing_has_an_empty_object_for_every_client(
    read: Callable[[Any], list[Event]], arguments: Any
) -> None:
    if read is from_anthropic and arguments == "null":
        # There a string is not the text of the arguments.
        arguments = None
    reply = fold(read(arguments))
    (call,) = json.loads(openai.write_reply(reply, SUMMARY, QUESTION))["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {}
    (item,) = json.loads(responses.write_reply(reply, SUMMARY, QUESTION))["output"]
    assert json.loads(item["arguments"]) == {}
    (block,) = json.loads(anthropic.write_reply(reply, SUMMARY, QUESTION))["content"]
    assert block["input"] == {}
    (candidate,) = json.loads(google.write_reply(reply, SUMMARY, QUESTION))["candidates"]
    assert candidate["content"]["parts"][-1]["functionCall"]["args"] == {}


@pytest.mark.parametrize("dialect", [anthropic, google])
def test_an_earlier_call_with_null_is_sent_with_an_empty_object(dialect: ModuleType) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "null"}}
    messages = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "fine"},
    ]
    chat = openai.read_request(json.dumps({"model": "m", "messages": messages}).encode())
    body = json.loads(dialect.write_request(chat, Target(model_name="m", facts={}, dropped_fields=[])))
    if dialect is anthropic:
        assert body["messages"][1]["content"][0]["input"] == {}
    else:
        assert body["contents"][1]["parts"][0]["functionCall"]["args"] == {}


def test_a_citation_without_a_place_is_one_of_all_that_was_said() -> None:
    note = {"type": "url_citation", "url_citation": {"url": "https://example.com", "title": "T"}}
    placed = {"type": "url_citation", "url_citation": {**note["url_citation"], "start_index": 0, "end_index": 5}}
    events: list[Event] = [Started(), TextDelta(text="Hello"), Annotated(annotation=note), Finished(reason="stop")]
    whole = json.loads(openai.write_reply(fold(events), SUMMARY, QUESTION))
    assert whole["choices"][0]["message"]["annotations"] == [placed]
    lines = b"".join(openai.write_events([*events, SUMMARY], QUESTION)).splitlines()
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in lines if line.startswith(b"data: {")]
    assert [delta["annotations"] for delta in deltas if "annotations" in delta] == [[placed]]


def test_marks_of_search_results_stay_with_their_words() -> None:
    marked = {"type": "ephemeral", "ttl": "1h"}
    result = {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "words"}]}
    inner = {**result, "content": [{"type": "text", "text": "words", "cache_control": marked}]}
    for block in ({**result, "cache_control": marked}, inner):
        turn = {"role": "user", "content": [block, {"type": "text", "text": "?"}]}
        body = {"model": "m", "max_tokens": 9, "messages": [turn]}
        chat = anthropic.read_request(json.dumps(body).encode())
        target = Target(model_name="m", facts={"takes": ["cache_control"]}, dropped_fields=[])
        part = json.loads(openai.write_request(chat, target))["messages"][0]["content"][0]
        assert part == {"type": "text", "text": "t\ns\nwords", "cache_control": marked}


def test_a_form_describes_itself_in_its_schema_where_there_is_no_other_place() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    form = {"type": "json_schema", "json_schema": {"name": "n", "description": "A person.", "schema": schema}}
    body = {"model": "m", "messages": [{"role": "user", "content": "?"}], "response_format": form}
    chat = openai.read_request(json.dumps(body).encode())
    written = json.loads(anthropic.write_request(chat, Target(model_name="m", facts={}, dropped_fields=[])))
    assert written["output_config"]["format"]["schema"]["description"] == "A person."
    written = json.loads(google.write_request(chat, Target(model_name="m", facts={}, dropped_fields=[])))
    assert written["generationConfig"]["responseJsonSchema"]["description"] == "A person."


@pytest.mark.parametrize(("kind", "told"), [("between_tools", ["thinking.type"]), ("adaptive", [])])
def test_thinking_between_tools_is_told_elsewhere(kind: str, told: list[str]) -> None:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "?"}], "thinking": {"type": kind}}
    chat = anthropic.read_request(json.dumps(body).encode())
    for dialect in (openai, google):
        target = Target(model_name="m", facts={}, dropped_fields=[])
        dialect.write_request(chat, target)
        assert [dropped.param for dropped in target.dropped_fields] == told
    own = json.loads(anthropic.write_request(chat, Target(model_name="m", facts={}, dropped_fields=[])))
    assert own["thinking"] == {"type": kind}

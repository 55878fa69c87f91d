"""Fields that only the client's format has: the client learns of each by the name in its own request."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest

from apps.gateway.canonical.chat import Chat, FunctionTool, Target
from apps.gateway.dialects.chat import anthropic, bedrock, google, openai, responses

SCHEMA = {"type": "object", "properties": {}}


def gemini(*parts: Any, role: str = "user", **fields: Any) -> Chat:
    """Return the chat of a client of Google's format."""
    contents = [{"role": "user", "parts": [{"text": "?"}]}, {"role": role, "parts": list(parts)}]
    return google.read_request(json.dumps({"contents": contents, **fields}).encode())


def claude(*messages: Any, **fields: Any) -> Chat:
    """Return the chat of a client of Anthropic's format."""
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "?"}, *messages], **fields}
    return anthropic.read_request(json.dumps(body).encode())


def told(chat: Chat, dialect: ModuleType = openai) -> list[str]:
    """Return the fields whose loss a client learns of."""
    target = Target(model_name="m", facts={}, dropped_fields=[])
    dialect.write_request(chat, target)
    return [dropped.param for dropped in target.dropped_fields]


@pytest.mark.parametrize("dialect", [openai, responses, anthropic])
@pytest.mark.parametrize(
    ("chat", "names"),
    [
        (gemini({"text": "a", "partMetadata": {"k": 1}}), ["contents.parts.partMetadata"]),
        (
            gemini({"text": "a"}, systemInstruction={"parts": [{"text": "b", "partMetadata": {"k": 1}}]}),
            ["systemInstruction.parts.partMetadata"],
        ),
        (
            gemini({"text": "a"}, tools=[{"functionDeclarations": [{"name": "f", "behavior": "NON_BLOCKING"}]}]),
            ["tools.functionDeclarations.behavior"],
        ),
        (
            gemini({"functionCall": {"id": "c", "name": "f", "partialArgs": [{"jsonPath": "$.a"}]}}, role="model"),
            ["contents", "contents.parts.functionCall.partialArgs"],
        ),
    ],
)
def test_gemini_clients_are_told_in_their_own_words(chat: Chat, names: list[str], dialect: ModuleType) -> None:
    assert told(chat, dialect) == names
    assert told(chat, google) == ([] if names[0] != "contents" else ["contents"])


@pytest.mark.parametrize("dialect", [openai, responses, google])
@pytest.mark.parametrize(
    ("chat", "names"),
    [
        (claude(thinking={"type": "adaptive", "block_binding": {"type": "x"}}), ["thinking.block_binding"]),
        (
            claude(
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "toolset_name": "s"}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]},
            ),
            ["messages.content.toolset_name"],
        ),
        (
            claude(
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "t",
                            "content": [
                                {
                                    "type": "search_result",
                                    "source": "s",
                                    "title": "t",
                                    "content": [{"type": "text", "text": "x"}],
                                    "citations": {"enabled": True},
                                }
                            ],
                        }
                    ],
                },
            ),
            ["messages.content.citations"],
        ),
        (
            claude(
                {
                    "role": "system",
                    "content": [
                        {
                            "type": "tool_addition",
                            "cache_control": {"type": "ephemeral"},
                            "tool": {
                                "type": "tool_definition",
                                "definition": {"name": "f", "input_schema": SCHEMA, "input_examples": [{}]},
                            },
                        }
                    ],
                    "output_config": {"effort": "low", "task_budget": {"type": "tokens", "total": 1}},
                }
            ),
            ["messages.output_config.task_budget", "messages.content.cache_control", "tools[0].input_examples"],
        ),
    ],
)
def test_clients_of_anthropics_previews_are_told(chat: Chat, names: list[str], dialect: ModuleType) -> None:
    assert told(chat, dialect)[: len(names)] == names
    assert told(chat, anthropic) == []


@pytest.mark.parametrize(
    ("clear_at", "contents"),
    [("next_user_message", ["?", "Go on"]), ("never", ["?", "<system>\nBe brief\n</system>", "Go on"])],
)
def test_a_system_message_for_one_turn_is_gone_after_it(clear_at: str, contents: list[str]) -> None:
    brief = {"role": "system", "content": "Be brief", "clear_at": clear_at}
    answer = {"role": "assistant", "content": "ok"}
    chat = claude(brief, answer, {"role": "user", "content": "Go on"})
    target = Target(model_name="m", facts={}, dropped_fields=[])
    wire = json.loads(google.write_request(chat, target))
    said = [part["text"] for turn in wire["contents"] if turn["role"] == "user" for part in turn["parts"]]
    assert (said, target.dropped_fields) == (contents, [])
    # It holds until the user speaks again.
    wire = json.loads(google.write_request(claude(brief), Target(model_name="m", facts={})))
    assert "Be brief" in json.dumps(wire)


@pytest.mark.parametrize("dialect", [openai, responses, anthropic])
def test_nullable_parameters_are_an_object(dialect: ModuleType) -> None:
    function = {
        "name": "f",
        "parameters": {"type": "OBJECT", "nullable": True, "properties": {"a": {"type": "STRING"}}},
    }
    chat = gemini({"text": "a"}, tools=[{"functionDeclarations": [function]}])
    (tool,) = chat.tools or []
    assert isinstance(tool, FunctionTool)
    assert tool.parameters == {"type": "object", "properties": {"a": {"type": "string"}}}
    assert told(chat, dialect) == []


def test_marks_inside_of_a_result_are_told_at_bedrock() -> None:
    shown = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
    chat = claude(
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [shown]}]},
    )
    assert told(chat, bedrock) == ["messages.content.cache_control"]

"""Chats written for Bedrock: refused fields and their names, fields left out and reported, effects of facts."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from apps.catalog.files import Mapping, read_files
from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects.chat import anthropic, bedrock, openai
from apps.gateway.dialects.chat.bedrock.wire import capabilities_of
from apps.kernel.errors import InvalidRequest
from tests.gateway.dialects.chat.bedrock.test_recorded_requests import assert_fits

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB"
# Models that chat in this format; the rest are pictures, embeddings and other formats.
MAPPINGS = [
    mapping
    for file in read_files().providers
    if file.dialect == "bedrock"
    for mapping in file.models
    if mapping.features and "dialect" not in msgspec.to_builtins(mapping)
]
SEALED: dict[str, Any] = {"reasoning_form": "thinking", "takes": ["tool_choice", "top_k"]}
TOOL = {"type": "function", "function": {"name": "weather"}}
TAKEN = [
    {"role": "user", "content": "?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "Sun"},
]


def target(**facts: Any) -> Target:
    return Target(model_name="us.maker.model-v1:0", facts=facts)


def asked(**fields: Any) -> Chat:
    """Return the chat that a client of OpenAI's format asks for."""
    body = {"model": "m", "messages": [{"role": "user", "content": "?"}], **fields}
    return openai.read_request(json.dumps(body).encode())


def asked_anthropic(**fields: Any) -> Chat:
    body = {"model": "m", "max_tokens": 2_000, "messages": [{"role": "user", "content": "?"}], **fields}
    return anthropic.read_request(json.dumps(body).encode())


def written(chat: Chat, to: Target | None = None) -> dict[str, Any]:
    return dict(json.loads(bedrock.write_request(chat, to or target())))


@pytest.mark.parametrize(
    ("name", "stream", "path"),
    [
        ("us.amazon.nova-micro-v1:0", False, "/model/us.amazon.nova-micro-v1%3A0/converse"),
        ("a", True, "/model/a/converse-stream"),
        (
            "arn:aws:bedrock:us-east-1:123456789012:inference-profile/x",
            False,
            "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3Ainference-profile%2Fx/converse",
        ),
        ("../../evil?x#y", False, "/model/..%2F..%2Fevil%3Fx%23y/converse"),
    ],
)
def test_a_models_name_is_quoted_in_the_path(name: str, stream: bool, path: str) -> None:
    chat = asked(stream=stream)
    to = Target(model_name=name, facts={})
    assert bedrock.path(chat, to) == path
    accept = {"Accept": "application/vnd.amazon.eventstream"} if stream else {}
    assert bedrock.headers(chat, to) == accept


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"web_search": True}, "web_search"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"tools": [{**TOOL, "function": {"name": "a", "parameters": {"type": "array"}}}]}, "tools[0]"),
        ({"tools": [TOOL], "parallel_tool_calls": False}, "parallel_tool_calls"),
        ({"tools": [TOOL], "tool_choice": "none", "messages": TAKEN}, "tool_choice"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a.b/c"}}]}]},
            "messages[0].content[0]",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "s3://a/b.png"}}]}]},
            "messages[0].content[0]",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]},
            "messages[0].content[0]",
        ),
    ],
)
def test_what_cannot_be_said_is_refused_by_its_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        written(asked(**fields))
    assert (refusal.value.code, refusal.value.param) == ("unsupported_feature", param)


def test_what_a_tool_answered_keeps_its_pictures_and_its_failure() -> None:
    messages = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}]},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "And?"},
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "is_error": True,
                    "content": [
                        {"type": "text", "text": "Half of it:"},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                    ],
                },
            ],
        },
    ]
    content = [{"text": "Half of it:"}, {"image": {"format": "png", "source": {"bytes": PNG}}}]
    result = {"toolResult": {"toolUseId": "t1", "content": content, "status": "error"}}
    assert written(asked_anthropic(messages=messages))["messages"][2]["content"] == [result, {"text": "And?"}]
    told = written(asked_anthropic(messages=messages), target(result_status=False))["messages"][2]["content"][0]
    assert told == {"toolResult": {"toolUseId": "t1", "content": [{"text": "The tool failed:"}, *content]}}


def test_a_call_without_its_result_gets_one_and_that_is_told() -> None:
    to = target()
    wire = written(asked(messages=[*TAKEN[:2], {"role": "user", "content": "Never mind."}]), to)
    result, text = wire["messages"][2]["content"]
    assert result["toolResult"]["toolUseId"] == "c1"
    assert text == {"text": "Never mind."}
    assert [dropped.param for dropped in to.dropped_fields] == ["messages[1].tool_calls"]


@pytest.mark.parametrize(
    ("fields", "config", "additional"),
    [
        ({"tool_choice": "auto"}, {"auto": {}}, None),
        ({"tool_choice": "required"}, {"any": {}}, None),
        ({"tool_choice": {"type": "function", "function": {"name": "weather"}}}, {"tool": {"name": "weather"}}, None),
        ({"parallel_tool_calls": True}, None, None),
        ({"parallel_tool_calls": False}, None, {"type": "auto", "disable_parallel_tool_use": True}),
        (
            {"parallel_tool_calls": False, "tool_choice": "required"},
            None,
            {"type": "any", "disable_parallel_tool_use": True},
        ),
        ({"tool_choice": "none", "messages": TAKEN}, None, {"type": "none"}),
    ],
)
def test_a_choice_among_tools_is_said_once(fields: dict[str, Any], config: Any, additional: Any) -> None:
    wire = written(asked(tools=[TOOL], **fields), target(takes=["tool_choice"]))
    assert wire["toolConfig"].get("toolChoice") == config
    assert wire.get("additionalModelRequestFields", {}).get("tool_choice") == additional


def test_tools_that_may_not_be_called_are_not_offered() -> None:
    assert "toolConfig" not in written(asked(tools=[TOOL], tool_choice="none"))


def test_only_the_allowed_of_the_tools_are_offered() -> None:
    other = {"type": "function", "function": {"name": "other"}}
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [TOOL]}}
    tools = written(asked(tools=[other, TOOL], tool_choice=choice))["toolConfig"]["tools"]
    assert [tool["toolSpec"]["name"] for tool in tools] == ["weather"]


def test_only_previews_that_the_model_takes_are_asked_for() -> None:
    chat = asked_anthropic()
    chat.betas = ["context-1m-2025-08-07", "other-2026-01-01"]
    to = target(**SEALED, betas=["context-1m-2025-08-07"])
    assert written(chat, to)["additionalModelRequestFields"] == {"anthropic_beta": ["context-1m-2025-08-07"]}
    assert [dropped.param for dropped in to.dropped_fields] == ["anthropic-beta"]


@pytest.mark.parametrize(
    ("takes", "ttl", "content", "lost"),
    [
        ([], None, [{"text": "a"}], ["messages[0].content[0].cache_control"]),
        (["cache_points"], "5m", [{"text": "a"}, {"cachePoint": {"type": "default"}}], []),
        (
            ["cache_points"],
            "1h",
            [{"text": "a"}, {"cachePoint": {"type": "default"}}],
            ["messages[0].content[0].cache_control.ttl"],
        ),
        (["cache_points", "cache_1h"], "1h", [{"text": "a"}, {"cachePoint": {"type": "default", "ttl": "1h"}}], []),
    ],
)
def test_a_cache_mark_stands_behind_its_block_where_the_model_takes_it(
    takes: list[str], ttl: str | None, content: list[Any], lost: list[str]
) -> None:
    mark = {"type": "ephemeral"} if ttl is None else {"type": "ephemeral", "ttl": ttl}
    part = {"type": "text", "text": "a", "cache_control": mark}
    to = target(takes=takes)
    assert written(asked(messages=[{"role": "user", "content": [part]}]), to)["messages"][0]["content"] == content
    assert [dropped.param for dropped in to.dropped_fields] == lost


@pytest.mark.parametrize(
    ("metadata", "sent"),
    [
        ({"team": "a-1", "empty": ""}, True),
        ({f"label-{number}": "x" for number in range(17)}, False),
        ({"words": "{json}"}, False),
        ({"long": "x" * 257}, False),
    ],
)
def test_labels_go_along_where_bedrock_takes_them(metadata: dict[str, str], sent: bool) -> None:
    to = target()
    assert written(asked(metadata=metadata), to).get("requestMetadata") == (metadata if sent else None)
    assert [dropped.param for dropped in to.dropped_fields] == ([] if sent else ["metadata"])


def test_the_facts_of_the_data_file_are_words_that_are_understood() -> None:
    words = {"cache_points", "cache_tools", "cache_1h", "citations", "tool_choice", "top_k", "inferenceConfig.topK"}
    taken = [set(mapping.facts.takes) for mapping in MAPPINGS if isinstance(mapping.facts.takes, list)]
    assert set().union(*taken) == words | {"strict"}
    capabilities = capabilities_of(target(**SEALED))
    assert (capabilities.signs_thinking, capabilities.result_status, capabilities.tool_results) == (True, True, None)


@pytest.mark.parametrize("mapping", MAPPINGS, ids=lambda mapping: mapping.id)
def test_every_model_of_the_data_file_is_asked_in_a_form_that_aws_knows(mapping: Mapping) -> None:
    said = msgspec.to_builtins(mapping)
    facts = {name: said[name] for name in ("reasoning_efforts", "reasoning_budget", "temperature") if name in said}
    to = Target(
        model_name=mapping.own_names[0],
        facts={**facts, "structured_outputs": "native", **said.get("facts", {})},
        max_output=mapping.max_output,
    )
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object", "properties": {}}}}
    for effort in ("none", "minimal", "medium", "max"):
        chat = asked(
            tools=[TOOL], messages=TAKEN, reasoning_effort=effort, top_k=5, temperature=0.5, response_format=form
        )
        assert_fits(written(chat, to), to, mapping.id)
        assert bedrock.path(chat, to).count("/") == 3

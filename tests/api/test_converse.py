"""Chats in Bedrock's format: `/model/{modelId}/converse` and `/converse-stream` with models of every provider's
format."""

from __future__ import annotations

import json
from base64 import b64encode
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest

from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from tests.support.aws_event_frames import lines_of
from tests.support.guardrails_in_force import forbid, guard
from tests.support.providers_of_every_format import OTHER, PLACES, play
from tests.support.upstream import Caller, nothing_happened, settle_all

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"toolSpec": {"name": "weather", "inputSchema": {"json": CITY}}}
PICTURE = b64encode(b"\x89PNG\r\n\x1a\n").decode()
ALONE = {"X-No-Fallback": "true"}


@pytest.fixture(params=PLACES)
def wire_format(request: pytest.FixtureRequest, caller: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Each format of providers; a provider of it is there as `other`."""
    chosen = str(request.param)
    play(caller, chosen, monkeypatch, tmp_path)
    return chosen


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"text": block} if isinstance(block, str) else block for block in blocks]}


def ask(
    caller: Caller, text: str = "hello", *, model: str = "sandbox/echo", stream: bool = False, **fields: Any
) -> Any:
    """Ask for a chat answer. `headers` are HTTP headers."""
    headers = {"Authorization": f"Bearer {fields.pop('key', caller.token)}", **fields.pop("headers", {})}
    path = f"/model/{quote(model, safe='')}/converse{'-stream' if stream else ''}"
    wire = {"messages": [user(text)], **fields}
    return caller.client.post(path, json.dumps(wire), content_type="application/json", headers=headers)


def events_of(response: Any) -> list[tuple[str, Any]]:
    """Return the types and contents of a stream's frames."""
    assert response.headers["Content-Type"] == "application/vnd.amazon.eventstream"
    lines = lines_of(b"".join(response.streaming_content))
    return [(name, json.loads(payload)) for name, _, payload in (line.partition(" ") for line in lines)]


def message_of(response: Any, *, stream: bool) -> tuple[dict[str, Any], str]:
    """Return text, thinking and calls of an answer, and why it ended, put together as clients do."""
    if not stream:
        body = response.json()
        blocks = body["output"]["message"]["content"]
        stop = body["stopReason"]
    else:
        blocks, stop = blocks_of(events_of(response))
    thoughts = [block["reasoningContent"]["reasoningText"] for block in blocks if "reasoningContent" in block]
    calls = [(block["toolUse"]["name"], block["toolUse"]["input"]) for block in blocks if "toolUse" in block]
    said = {
        "text": "".join(block.get("text", "") for block in blocks),
        "thinking": "".join(thought["text"] for thought in thoughts),
        "calls": calls,
    }
    return said, stop


def blocks_of(events: list[tuple[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """Return a stream's blocks, whole, and why it ended; its order is checked."""
    kinds = [kind for kind, _ in events]
    assert (kinds[0], kinds[-2:]) == ("messageStart", ["messageStop", "metadata"])
    blocks: list[dict[str, Any]] = []
    ended = 0
    for kind, content in events[1:-2]:
        index = content["contentBlockIndex"]
        # One block after the other.
        assert index == ended
        if len(blocks) == index:
            blocks.append({})
        block = blocks[index]
        if kind == "contentBlockStart":
            block["toolUse"] = {**content["start"]["toolUse"], "input": ""}
        elif kind == "contentBlockStop":
            ended += 1
        else:
            add_delta(block, content["delta"])
    assert ended == len(blocks)
    for block in blocks:
        if "toolUse" in block:
            block["toolUse"]["input"] = json.loads(block["toolUse"]["input"])
    return blocks, events[-2][1]["stopReason"]


def add_delta(block: dict[str, Any], delta: dict[str, Any]) -> None:
    if "toolUse" in delta:
        block["toolUse"]["input"] += delta["toolUse"]["input"]
    elif "reasoningContent" in delta:
        thought = block.setdefault("reasoningContent", {}).setdefault("reasoningText", {"text": ""})
        for name, value in delta["reasoningContent"].items():
            thought[name] = thought.get(name, "") + value
    else:
        block["text"] = block.get("text", "") + delta["text"]


@pytest.mark.parametrize("stream", [False, True])
def test_models_of_every_format_answer(caller: Caller, wire_format: str, stream: bool) -> None:
    response = ask(
        caller, "hello", model=f"{OTHER}/echo", stream=stream, headers=ALONE, inferenceConfig={"maxTokens": 200}
    )
    assert response.status_code == 200
    said, stop = message_of(response, stream=stream)
    assert (said, stop) == ({"text": "You said: hello", "thinking": "", "calls": []}, "end_turn")


@pytest.mark.parametrize("stream", [False, True])
def test_models_of_every_format_call_tools_and_read_their_results(
    caller: Caller, wire_format: str, stream: bool
) -> None:
    fields: dict[str, Any] = {"model": f"{OTHER}/tools", "stream": stream, "headers": ALONE}
    fields["toolConfig"] = {"tools": [WEATHER], "toolChoice": {"auto": {}}}
    said, stop = message_of(ask(caller, messages=[user("call weather")], **fields), stream=stream)
    [(name, arguments)] = said["calls"]
    assert (name, arguments.keys(), stop) == ("weather", {"city"}, "tool_use")
    call = {"toolUse": {"toolUseId": "c1", "name": name, "input": arguments}}
    result = {"toolResult": {"toolUseId": "c1", "content": [{"json": {"sky": "Sun"}}], "status": "success"}}
    messages = [user("call weather"), {"role": "assistant", "content": [call]}, user(result)]
    said, stop = message_of(ask(caller, messages=messages, **fields), stream=stream)
    assert stop == "end_turn"
    assert said["text"].startswith("weather answered: ")
    assert "Sun" in said["text"]


def test_models_of_every_format_see_pictures(caller: Caller, wire_format: str) -> None:
    picture = {"image": {"format": "png", "source": {"bytes": PICTURE}}}
    response = ask(caller, messages=[user("look", picture)], model=f"{OTHER}/echo", headers=ALONE)
    assert response.status_code == 200, response.content
    said, _ = message_of(response, stream=False)
    assert "1 image" in said["text"]


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_has_its_form(caller: Caller, wire_format: str, stream: bool) -> None:
    definition = {"name": "place", "schema": json.dumps({**CITY, "additionalProperties": False})}
    form = {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": definition}}}
    response = ask(caller, model=f"{OTHER}/json", outputConfig=form, stream=stream, headers=ALONE)
    said, stop = message_of(response, stream=stream)
    assert (json.loads(said["text"]).keys(), stop) == ({"city"}, "end_turn")


def test_an_answer_is_billed_and_logged_once(caller: Caller) -> None:
    Organization.objects.filter(pk=caller.organization_id).update(retention_level="retain")
    text = "hi [[sandbox usage=1000,200,300]]"
    response = ask(caller, text, system=[{"text": "Be brief."}], toolConfig={"tools": [WEATHER]})
    body = response.json()
    assert body["usage"] == {
        "inputTokens": 700,
        "outputTokens": 200,
        "totalTokens": 1200,
        "cacheReadInputTokens": 300,
        "cacheWriteInputTokens": 0,
    }
    assert body["metrics"]["latencyMs"] >= 0
    assert Decimal(str(body["gateway"]["cost_usd"]["total"])) > 0
    assert response.headers["x-amzn-RequestId"] == response.headers["x-request-id"]
    assert settle_all() == 1
    row = RequestLog.objects.get()
    assert (row.route, row.status_code, row.requested_model) == ("converse", 200, "sandbox/echo")
    assert row.cost > Decimal(0)
    assert row.messages == [{"role": "system", "content": [{"text": "Be brief."}]}, user(text)]
    assert row.tools == [WEATHER]


def test_a_stream_is_billed_as_its_metadata_says(caller: Caller) -> None:
    events = events_of(ask(caller, "hi [[sandbox usage=1000,200,300]]", stream=True))
    kind, last = events[-1]
    assert (kind, last["usage"]["totalTokens"], last["usage"]["cacheReadInputTokens"]) == ("metadata", 1200, 300)
    assert settle_all() == 1
    row = RequestLog.objects.get()
    assert (row.prompt_tokens, row.completion_tokens, row.streamed) == (1000, 200, True)


@pytest.mark.parametrize("stream", [False, True])
def test_thinking_comes_before_the_text(caller: Caller, stream: bool) -> None:
    said, _ = message_of(ask(caller, "hi [[sandbox reasoning=2]]", stream=stream), stream=stream)
    assert said == {"thinking": "thought-1 thought-2", "text": "You said: hi", "calls": []}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": []}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [user({"text": "a", "image": {}})]}, "messages[0].content[0]"),
        ({"messages": [user({"sound": {}})]}, "messages[0].content[0]"),
        ({"messages": [user({"text": 7})]}, "messages[0].content[0].text"),
        ({"messages": [user({"cachePoint": {"type": "default"}})]}, "messages[0].content[0].cachePoint"),
        (
            {"messages": [user({"image": {"format": "bmp", "source": {"bytes": PICTURE}}})]},
            "messages[0].content[0].image.format",
        ),
        (
            {"messages": [user({"image": {"format": "png", "source": {"s3Location": {"uri": "s3://a/b"}}}})]},
            "messages[0].content[0].image.source.s3Location",
        ),
        (
            {"messages": [user({"document": {"format": "pdf", "source": {"bytes": "AAAA"}}})]},
            "messages[0].content[0].document.name",
        ),
        (
            {"messages": [user({"toolResult": {"content": [{"text": "a"}]}})]},
            "messages[0].content[0].toolResult.toolUseId",
        ),
        (
            {"messages": [user("a"), {"role": "assistant", "content": [{"toolUse": {"toolUseId": "a", "input": {}}}]}]},
            "messages[1].content[0].toolUse.name",
        ),
        (
            {"messages": [{"role": "assistant", "content": [{"reasoningContent": {"redactedContent": "%"}}]}]},
            "messages[0].content[0].reasoningContent.redactedContent",
        ),
        ({"system": [{"image": {}}]}, "system[0]"),
        ({"inferenceConfig": {"maxTokens": 0}}, "inferenceConfig.maxTokens"),
        ({"inferenceConfig": {"temperature": 1.5}}, "inferenceConfig.temperature"),
        ({"inferenceConfig": {"stopSequences": [""]}}, "inferenceConfig.stopSequences[0]"),
        ({"toolConfig": {}}, "toolConfig.tools"),
        ({"toolConfig": {"tools": [{"toolSpec": {"name": "a"}}]}}, "toolConfig.tools[0].toolSpec.inputSchema"),
        ({"toolConfig": {"tools": [WEATHER], "toolChoice": {"none": {}}}}, "toolConfig.toolChoice"),
        (
            {
                "toolConfig": {"tools": [WEATHER], "toolChoice": {"any": {}}},
                "additionalModelRequestFields": {"tool_choice": {"type": "any"}},
            },
            "additionalModelRequestFields.tool_choice",
        ),
        (
            {"additionalModelRequestFields": {"thinking": {"type": "enabled"}}},
            "additionalModelRequestFields.thinking.budget_tokens",
        ),
        ({"additionalModelRequestFields": {"top_k": -1}}, "additionalModelRequestFields.top_k"),
        ({"additionalModelRequestFields": []}, "additionalModelRequestFields"),
        (
            {
                "outputConfig": {
                    "textFormat": {"type": "json_schema", "structure": {"jsonSchema": {"schema": "{"}}},
                }
            },
            "outputConfig.textFormat.structure.jsonSchema.schema",
        ),
        ({"requestMetadata": {"a": 1}}, "requestMetadata.a"),
        ({"performanceConfig": {"latency": "low"}}, "performanceConfig.latency"),
        ({"serviceTier": {}}, "serviceTier.type"),
    ],
)
def test_a_wrong_field_is_refused_by_its_name(caller: Caller, fields: dict[str, Any], param: str) -> None:
    response = ask(caller, **fields)
    body = response.json()
    assert (response.status_code, body["error"]["param"]) == (400, param)
    assert (body["__type"], response.headers["x-amzn-ErrorType"]) == ("ValidationException", "ValidationException")
    assert body["message"].startswith(f"{param}: ")
    assert nothing_happened(caller)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"guardrailConfig": {"guardrailIdentifier": "a1", "guardrailVersion": "1"}}, "guardrailConfig"),
        ({"promptVariables": {"a": {"text": "b"}}}, "promptVariables"),
    ],
)
def test_what_aws_keeps_in_an_account_is_refused(caller: Caller, fields: dict[str, Any], param: str) -> None:
    response = ask(caller, **fields)
    assert (response.status_code, response.json()["error"]) == (
        400,
        {"type": "invalid_request_error", "code": "unsupported_feature", "param": param},
    )
    assert nothing_happened(caller)


def test_tools_that_bedrock_runs_itself_are_refused(caller: Caller, wire_format: str) -> None:
    tools = {"tools": [{"systemTool": {"name": "nova_grounding"}}]}
    response = ask(caller, model=f"{OTHER}/echo", toolConfig=tools, headers=ALONE)
    refusal = response.json()
    assert (response.status_code, refusal["error"]["param"]) == (400, "toolConfig.tools")
    assert refusal["message"].startswith(
        "toolConfig.tools: systemTool is a tool that this model's provider does not have"
    )


def test_hints_that_a_provider_lacks_are_told_under_bedrocks_names(caller: Caller) -> None:
    fields: dict[str, Any] = {
        "performanceConfig": {"latency": "optimized"},
        "additionalModelRequestFields": {"k": 3, "anthropic_beta": ["a-1"]},
        "inferenceConfig": {"maxTokens": 900_000},
        "additionalModelResponseFieldPaths": ["/a"],
    }
    response = ask(caller, **fields)
    assert response.status_code == 200
    assert set(response.headers["x-gateway-loss"].split(", ")) == {
        "performanceConfig.latency",
        "additionalModelRequestFields.k",
        "additionalModelRequestFields.anthropic_beta",
        "additionalModelResponseFieldPaths",
        "inferenceConfig.maxTokens",
    }
    strict = ask(caller, headers={"X-Strict": "true", **ALONE}, **fields)
    assert (strict.status_code, strict.json()["error"]["code"]) == (400, "unsupported_feature")


@pytest.mark.parametrize(
    ("fields", "status", "name"),
    [
        ({"key": "sk-wrong"}, 401, "AccessDeniedException"),
        ({"model": "no-such-model"}, 404, "ResourceNotFoundException"),
        ({"text": "[[sandbox status=429]]", "headers": ALONE}, 429, "ThrottlingException"),
        ({"text": "[[sandbox status=500]]", "headers": ALONE}, 424, "ModelErrorException"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_are_the_exceptions_of_converse(
    caller: Caller, fields: dict[str, Any], status: int, name: str, stream: bool
) -> None:
    response = ask(caller, stream=stream, **fields)
    assert (response.status_code, response.headers["x-amzn-ErrorType"]) == (status, name)
    assert response.json()["message"]


@pytest.mark.parametrize("fault", ["cut=2", "error=2", "broken=2"])
def test_a_stream_that_breaks_ends_with_an_exception(caller: Caller, fault: str) -> None:
    response = ask(caller, f"one two three [[sandbox {fault}]]", stream=True)
    events = events_of(response)
    kind, content = events[-1]
    assert (events[0], kind) == (("messageStart", {"role": "assistant"}), "!modelStreamErrorException")
    assert content["message"]


def test_a_model_is_named_in_the_words_of_bedrock(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "secret")
    monkeypatch.setenv("BEDROCK_BASE_URL", caller.sandbox_url)
    response = ask(caller, model="global.anthropic.claude-sonnet-4-5-20250929-v1:0", headers=ALONE)
    assert settle_all() == 1
    row = RequestLog.objects.get()
    assert (row.requested_model, row.used_provider) == (
        "bedrock/global.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "bedrock",
    )
    assert response.headers["x-amzn-RequestId"]


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"messages": [user("of project zanzibar")]}, "messages[0].content[0].text"),
        ({"system": [{"text": "of project zanzibar"}]}, "system[0].text"),
        (
            {"messages": [user({"guardContent": {"text": {"text": "of project zanzibar"}}})]},
            "messages[0].content[0].guardContent.text.text",
        ),
        (
            {"messages": [user({"document": {"format": "txt", "name": "a", "source": {"text": "project zanzibar"}}})]},
            "messages[0].content[0]",
        ),
        (
            {"additionalModelRequestFields": {"hint": "of project zanzibar"}},
            "additionalModelRequestFields.hint",
        ),
    ],
)
def test_a_guardrail_finds_the_text_where_the_client_wrote_it(
    caller: Caller, fields: dict[str, Any], place: str
) -> None:
    guard(caller)
    forbid(caller, "project zanzibar")
    response = ask(caller, **fields)
    assert response.status_code == 400
    assert response.json()["message"].startswith(f"Blocked by the guardrail 'Terms' in {place}: ")


def test_a_guardrail_masks_what_tools_answered(caller: Caller) -> None:
    guard(caller)
    forbid(caller, "project zanzibar", action="redact")
    tag = uuid4().hex
    call = {"toolUse": {"toolUseId": "c1", "name": "weather", "input": {"city": "Oslo"}}}
    result = {"toolResult": {"toolUseId": "c1", "content": [{"json": {"sky": "of project zanzibar"}}]}}
    messages = [user("?"), {"role": "assistant", "content": [call]}, user(result, f"so [[sandbox tag={tag}]]")]
    response = ask(caller, messages=messages, toolConfig={"tools": [WEATHER]})
    assert response.status_code == 200, response.content
    [sent] = caller.sent(tag)
    assert "zanzibar" not in json.dumps(sent["body"])

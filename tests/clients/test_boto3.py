"""AWS's own client, over every format of provider: Converse whole and streamed, tools, pictures, forms and errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError

from tests.clients.gateway import EVERY_FORMAT, Behind, Gateway
from tests.support.tls_front import tls_front

pytestmark = pytest.mark.stack

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: Any = {"tools": [{"toolSpec": {"name": "get_weather", "inputSchema": {"json": CITY}}}]}
PICTURE = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(params=EVERY_FORMAT, ids=[behind.format for behind in EVERY_FORMAT])
def behind(request: pytest.FixtureRequest) -> Behind:
    """The provider that answers: one of every format."""
    chosen: Behind = request.param
    return chosen


@pytest.fixture(scope="module")
def front(gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """HTTPS before the gateway, without which AWS's clients send no bearer token."""
    with tls_front(gateway.port, tmp_path_factory.mktemp("tls")) as opened:
        yield opened


@pytest.fixture
def client(gateway: Gateway, front: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The official client without a setting in its code: address and key are in the variables that AWS has for them."""
    address, authority = front
    monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", address)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", gateway.key)
    client = new_client()
    yield client
    client.close()


def new_client() -> Any:
    return boto3.session.Session().client("bedrock-runtime")


def question(*blocks: Any) -> list[Any]:
    return [{"role": "user", "content": [{"text": block} if isinstance(block, str) else block for block in blocks]}]


def test_a_chat(client: Any, behind: Behind) -> None:
    answer = client.converse(
        modelId=behind.model,
        messages=question("hello [[sandbox usage=1000,200,300]]"),
        system=[{"text": "Be brief."}],
        inferenceConfig={"maxTokens": 400},
    )
    assert answer["output"]["message"] == {"role": "assistant", "content": [{"text": "You said: hello"}]}
    assert answer["stopReason"] == "end_turn"
    usage = answer["usage"]
    assert (usage["totalTokens"], usage["outputTokens"]) == (1200, 200)
    assert usage["inputTokens"] + usage["cacheReadInputTokens"] + usage["cacheWriteInputTokens"] == 1000
    assert answer["metrics"]["latencyMs"] >= 0
    assert answer["ResponseMetadata"]["RequestId"]


def test_a_stream(client: Any, behind: Behind) -> None:
    asked = {"modelId": behind.model, "messages": question("one two three"), "inferenceConfig": {"maxTokens": 400}}
    events = list(client.converse_stream(**asked)["stream"])
    assert [next(iter(event)) for event in (events[0], *events[-3:])] == [
        "messageStart",
        "contentBlockStop",
        "messageStop",
        "metadata",
    ]
    deltas = [event["contentBlockDelta"]["delta"]["text"] for event in events if "contentBlockDelta" in event]
    assert "".join(deltas) == "You said: one two three"
    assert events[-2]["messageStop"]["stopReason"] == "end_turn"
    assert events[-1]["metadata"]["usage"]["outputTokens"] > 0


def test_tools_are_called_and_answered(client: Any, behind: Behind) -> None:
    messages = question('call get_weather({"city": "Zürich"})')
    answer = client.converse(modelId=behind.model, messages=messages, toolConfig=TOOLS)
    assert answer["stopReason"] == "tool_use"
    said = answer["output"]["message"]
    [call] = [block["toolUse"] for block in said["content"] if "toolUse" in block]
    assert (call["name"], call["input"]) == ("get_weather", {"city": "Zürich"})
    result = {"toolResult": {"toolUseId": call["toolUseId"], "content": [{"json": {"sky": "Sun"}}]}}
    again = client.converse(modelId=behind.model, messages=[*messages, said, *question(result)], toolConfig=TOOLS)
    assert again["stopReason"] == "end_turn"
    assert "Sun" in "".join(block.get("text", "") for block in again["output"]["message"]["content"])


def test_tools_are_called_in_a_stream(client: Any, behind: Behind) -> None:
    asked = {"modelId": behind.model, "messages": question('call get_weather({"city": "Zürich"})')}
    events = list(client.converse_stream(**asked, toolConfig=TOOLS)["stream"])
    [start] = [event["contentBlockStart"] for event in events if "contentBlockStart" in event]
    assert start["start"]["toolUse"]["name"] == "get_weather"
    deltas = [event["contentBlockDelta"]["delta"] for event in events if "contentBlockDelta" in event]
    pieces = [delta["toolUse"]["input"] for delta in deltas if "toolUse" in delta]
    assert json.loads("".join(pieces)) == {"city": "Zürich"}
    assert [event["messageStop"]["stopReason"] for event in events if "messageStop" in event] == ["tool_use"]


def test_a_picture_is_seen(client: Any, behind: Behind) -> None:
    picture = {"image": {"format": "png", "source": {"bytes": PICTURE}}}
    answer = client.converse(modelId=behind.model, messages=question("look", picture))
    assert "1 image" in answer["output"]["message"]["content"][-1]["text"]


def test_an_answer_has_its_form(client: Any, behind: Behind) -> None:
    definition = {"name": "place", "schema": json.dumps({**CITY, "additionalProperties": False})}
    form = {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": definition}}}
    answer = client.converse(modelId=behind.model, messages=question("where? in JSON"), outputConfig=form)
    said = "".join(block.get("text", "") for block in answer["output"]["message"]["content"])
    assert json.loads(said).keys() == {"city"}


def test_errors_have_their_types(
    client: Any, gateway: Gateway, behind: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(client.exceptions.ValidationException) as refused:
        client.converse(modelId=behind.model, messages=question("hi"), inferenceConfig={"temperature": 1.5})
    assert refused.value.response["Error"]["Message"] == "inferenceConfig.temperature: must be between 0 and 1"
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.converse_stream(modelId="no-such-model", messages=question("hi"))
    # So late that every format has begun to answer.
    words = " ".join(["word"] * 20)
    broken = client.converse_stream(modelId=behind.model, messages=question(f"{words} [[sandbox error=9]]"))
    with pytest.raises(EventStreamError) as failed:
        list(broken["stream"])
    assert failed.value.response["Error"]["Code"] == "modelStreamErrorException"
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "wrong")
    stranger = new_client()
    with pytest.raises(ClientError) as unknown:
        stranger.converse(modelId=behind.model, messages=question("hi"))
    assert unknown.value.response["Error"]["Code"] == "AccessDeniedException"
    stranger.close()


def test_a_chat_without_tls(gateway: Gateway, behind: Behind) -> None:
    """On plain HTTP the key is a header that the program adds, as the guide to this client says."""
    config = Config(signature_version=UNSIGNED)
    client: Any = boto3.client("bedrock-runtime", endpoint_url=gateway.url, region_name="us-east-1", config=config)

    def add_key(request: Any, **_: Any) -> None:
        request.headers["Authorization"] = f"Bearer {gateway.key}"

    client.meta.events.register("before-send.bedrock-runtime", add_key)
    answer = client.converse(modelId=behind.model, messages=question("hello"), inferenceConfig={"maxTokens": 400})
    assert answer["output"]["message"]["content"] == [{"text": "You said: hello"}]
    client.close()

"""The sandbox as Bedrock: AWS's own client talks to it, and what Bedrock refuses is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import botocore.session
import pytest
import requests
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError

WEATHER: dict[str, Any] = {"toolSpec": {"name": "weather", "inputSchema": {"json": {"type": "object"}}}}
CALL: dict[str, Any] = {"toolUse": {"toolUseId": "c1", "name": "weather", "input": {}}}
RESULT: dict[str, Any] = {"toolResult": {"toolUseId": "c1", "content": [{"text": "Sun"}]}}
FILE: dict[str, Any] = {"document": {"format": "pdf", "name": "a b", "source": {"bytes": "AAAA"}}}
TOOLS: dict[str, Any] = {"toolConfig": {"tools": [WEATHER]}}


@pytest.fixture
def client(sandbox_url: str) -> Iterator[Any]:
    """AWS's own client, which signs what it sends."""
    session = botocore.session.get_session()
    client = session.create_client(
        "bedrock-runtime",
        region_name="eu-west-1",
        endpoint_url=sandbox_url,
        aws_access_key_id="AKIDEXAMPLEEXAMPLE01",
        aws_secret_access_key="secret",
        config=Config(retries={"total_max_attempts": 1}),
    )
    yield client
    client.close()


def user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"text": text}]}]


def post(sandbox_url: str, turns: list[list[Any]], **fields: Any) -> requests.Response:
    """Ask with turns of blocks, the user's first."""
    messages = [{"role": ("user", "assistant")[place % 2], "content": blocks} for place, blocks in enumerate(turns)]
    return requests.post(
        f"{sandbox_url}/model/tools/converse",
        json={"messages": messages, **fields},
        headers={"Authorization": "Bearer key"},
        timeout=10,
    )


def test_awss_client_gets_a_plain_answer(client: Any) -> None:
    answer = client.converse(modelId="echo:words=2", messages=user("hi [[sandbox usage=10,7,4,2,1]]"))
    assert answer["output"]["message"] == {"role": "assistant", "content": [{"text": "word-1 word-2"}]}
    assert answer["stopReason"] == "end_turn"
    usage = answer["usage"]
    assert (usage["inputTokens"], usage["cacheReadInputTokens"], usage["cacheWriteInputTokens"]) == (5, 4, 1)
    assert (usage["outputTokens"], usage["totalTokens"]) == (7, 17)


def test_awss_client_gets_a_stream(client: Any) -> None:
    asked = user("call weather [[sandbox reasoning=2 chunks=2]]")
    stream = client.converse_stream(modelId="tools", messages=asked, toolConfig={"tools": [WEATHER]})["stream"]
    events = list(stream)
    assert [next(iter(event)) for event in events if "contentBlockDelta" not in event] == [
        "messageStart",
        "contentBlockStop",
        "contentBlockStart",
        "contentBlockStop",
        "messageStop",
        "metadata",
    ]
    deltas = [event["contentBlockDelta"]["delta"] for event in events if "contentBlockDelta" in event]
    assert "".join(delta["reasoningContent"].get("text", "") for delta in deltas[:3]) == "thought-1 thought-2"
    assert deltas[-1]["toolUse"]["input"]


@pytest.mark.parametrize(
    ("status", "name"), [(429, "throttlingException"), (503, "serviceUnavailableException"), (400, None)]
)
def test_awss_client_hears_of_a_failure(client: Any, status: int, name: str | None) -> None:
    with pytest.raises(ClientError) as failure:
        client.converse(modelId="echo", messages=user(f"hi [[sandbox status={status}]]"))
    assert failure.value.response["ResponseMetadata"]["HTTPStatusCode"] == status


def test_awss_client_hears_of_a_failure_in_the_middle(client: Any) -> None:
    stream = client.converse_stream(modelId="echo", messages=user("one two three [[sandbox error=2]]"))["stream"]
    with pytest.raises(EventStreamError, match="internalServerException"):
        list(stream)


def test_thinking_comes_back_only_under_its_seal(sandbox_url: str) -> None:
    [thought, _] = post(sandbox_url, [[{"text": "[[sandbox reasoning=2]]"}]]).json()["output"]["message"]["content"]
    turns = [[{"text": "a"}], [thought, {"text": "b"}], [{"text": "c"}]]
    assert post(sandbox_url, turns).status_code == 200
    thought["reasoningContent"]["reasoningText"]["signature"] = "AAAA"
    assert post(sandbox_url, turns).status_code == 400


@pytest.mark.parametrize(
    ("turns", "fields", "status"),
    [
        ([[{"text": "Hi"}], [CALL], [RESULT]], TOOLS, 200),
        ([[{"text": "Hi"}], [CALL], [RESULT]], {}, 400),
        ([[{"text": "Hi"}], [CALL]], TOOLS, 400),
        ([[{"text": "Hi"}], [CALL], [{"text": "?"}]], TOOLS, 400),
        ([[RESULT]], TOOLS, 400),
        ([[{"text": " "}]], {}, 400),
        ([[FILE, {"text": "?"}]], {}, 200),
        ([[FILE]], {}, 400),
        ([[FILE, FILE, {"text": "?"}]], {}, 400),
        ([[{"document": {**FILE["document"], "name": "a.pdf"}}, {"text": "?"}]], {}, 400),
        ([[{"text": "Hi", "unknown": 1}]], {}, 400),
        ([[{"text": "Hi"}]], {"unknown": 1}, 400),
        ([[{"text": "Hi"}]], {"inferenceConfig": {"temperature": 1.5}}, 400),
        ([[{"text": "Hi"}]], {"toolConfig": {"tools": []}}, 400),
        ([[]], {}, 400),
        ([], {}, 400),
    ],
)
def test_what_bedrock_refuses_is_refused(
    sandbox_url: str, turns: list[list[Any]], fields: dict[str, Any], status: int
) -> None:
    answer = post(sandbox_url, turns, **fields)
    assert answer.status_code == status, answer.text
    assert ("message" in answer.json()) == (status == 400)


@pytest.mark.parametrize(
    "presented", ["", "Basic abc", "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLEEXAMPLE01/20261120", "Bearer invalid"]
)
def test_a_request_without_a_credential_is_refused(sandbox_url: str, presented: str) -> None:
    headers = {"Authorization": presented}
    answer = requests.post(f"{sandbox_url}/model/echo/converse", json={}, headers=headers, timeout=10)
    assert (answer.status_code, list(answer.json())) == (401, ["message"])


def test_the_models_are_listed_in_bedrocks_words(sandbox_url: str) -> None:
    answer = requests.get(f"{sandbox_url}/foundation-models", headers={"Authorization": "Bearer k"}, timeout=10).json()
    assert "echo" in [model["modelId"] for model in answer["modelSummaries"]]

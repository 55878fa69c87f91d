"""Anthropic's own client against the running product: whole and streamed, for providers of both formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anthropic
import pytest
import requests

from tests.stack.product import Product

pytestmark = pytest.mark.stack

WEATHER = {
    "name": "get_weather",
    "description": "The weather in a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
        "required": ["city", "days"],
    },
}
TIME = {**WEATHER, "name": "get_time"}
# The sandbox a second time, as a provider of Anthropic's format with models of its own.
MIRROR = """
from apps.catalog.models import Model, ModelProvider, Provider
provider = Provider.objects.get(pk="sandbox")
provider.pk, provider.name, provider.dialect, provider.auth = "mirror", "Mirror", "anthropic", "x-api-key"
provider.base_url = "{url}"
provider._state.adding = True
provider.save()
for name in ("echo", "reasoner"):
    model, mapping = Model.objects.get(pk=name), ModelProvider.objects.get(provider_id="sandbox", model_id=name)
    model.pk = "mirror-" + name
    model._state.adding = True
    model.save()
    mapping.pk, mapping.model_id, mapping.provider_id, mapping.model_name = None, model.pk, "mirror", name
    mapping._state.adding = True
    mapping.save()
"""


@pytest.fixture(scope="module")
def mirror(product: Product) -> Product:
    """The product with the mirror in its catalog."""
    (pid,) = product.processes("apps.sandbox", "--port")[-1:]
    command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    port = command[command.index(b"--port") + 1].decode()
    product.manage("shell", "-c", MIRROR.format(url=f"http://127.0.0.1:{port}/v1"))
    return product


@pytest.fixture
def client(mirror: Product) -> anthropic.Anthropic:
    """The official client, pointed at the gateway."""
    return anthropic.Anthropic(base_url=mirror.url, api_key=mirror.demo["apiKey"], max_retries=0)


@pytest.fixture(params=["sandbox/", "mirror/mirror-"], ids=["openai", "anthropic"])
def models(request: pytest.FixtureRequest) -> str:
    """The prefix of the models' names: each test runs against a provider of either format."""
    return str(request.param)


def question(content: Any) -> list[Any]:
    return [{"role": "user", "content": content}]


def test_a_plain_message(client: anthropic.Anthropic, models: str) -> None:
    message = client.messages.create(
        model=f"{models}echo", max_tokens=100, messages=question("hello [[sandbox usage=1000,200,300]]")
    )
    assert [block.to_dict() for block in message.content] == [{"type": "text", "text": "You said: hello"}]
    assert (message.type, message.role, message.stop_reason, message.stop_sequence) == (
        "message",
        "assistant",
        "end_turn",
        None,
    )
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (700, 300, 200)


def test_a_streamed_message_adds_up_to_the_plain_one(client: anthropic.Anthropic, models: str) -> None:
    with client.messages.stream(
        model=f"{models}echo", max_tokens=100, messages=question("hello [[sandbox chunks=5 usage=1000,200,300]]")
    ) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
    assert text == "You said: hello"
    assert [(block.type, block.text) for block in message.content] == [("text", "You said: hello")]
    assert message.stop_reason == "end_turn"
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (700, 300, 200)


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
def test_a_loop_of_tool_use(client: anthropic.Anthropic, models: str, streamed: bool) -> None:
    tools: Any = [WEATHER, TIME]
    asked = question("call get_weather and get_time")
    fields: Any = {"model": f"{models}echo", "max_tokens": 200, "tools": tools}
    if streamed:
        with client.messages.stream(**fields, messages=asked) as stream:
            message = stream.get_final_message()
    else:
        message = client.messages.create(**fields, messages=asked)
    assert message.stop_reason == "tool_use"
    assert [(block.type, block.name, block.input) for block in message.content] == [
        ("tool_use", "get_weather", {"city": "city", "days": 1}),
        ("tool_use", "get_time", {"city": "city", "days": 1}),
    ]
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": f"{block.name} is fine"}]}
        for block in message.content
    ]
    final = client.messages.create(
        **fields,
        messages=[*asked, {"role": "assistant", "content": message.content}, {"role": "user", "content": results}],
    )
    assert final.stop_reason == "end_turn"
    assert "get_weather is fine" in final.content[0].text


def test_thinking_streams_and_is_taken_back(client: anthropic.Anthropic, models: str) -> None:
    asked = question("why?")
    fields: Any = {
        "model": f"{models}reasoner",
        "max_tokens": 2000,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }
    with client.messages.stream(**fields, messages=asked) as stream:
        message = stream.get_final_message()
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.content[0].thinking
    again = client.messages.create(
        **fields, messages=[*asked, {"role": "assistant", "content": message.content}, *question("and then?")]
    )
    assert again.content[-1].text == "You said: and then?"


def test_errors_are_the_clients_own(client: anthropic.Anthropic, mirror: Product) -> None:
    with pytest.raises(anthropic.BadRequestError) as refused:
        client.messages.create(model="no-such-model", max_tokens=1, messages=question("hi"))
    assert refused.value.body["error"]["type"] == "invalid_request_error"
    stranger = anthropic.Anthropic(base_url=mirror.url, api_key="gw_dev_" + "0" * 40, max_retries=0)
    with pytest.raises(anthropic.AuthenticationError):
        stranger.messages.create(model="sandbox/echo", max_tokens=1, messages=question("hi"))


def test_a_stream_that_breaks_off_is_an_error(client: anthropic.Anthropic, models: str) -> None:
    asked = question("one two three four [[sandbox cut=middle chunks=6]]")
    with (
        pytest.raises(anthropic.APIStatusError, match=r"ended|closed"),
        client.messages.stream(model=f"{models}echo", max_tokens=100, messages=asked) as stream,
    ):
        stream.get_final_message()


def test_a_silent_provider_is_bridged(client: anthropic.Anthropic, models: str) -> None:
    asked = question("slow words here [[sandbox latency=1000 gap=500 chunks=2]]")
    with client.messages.stream(model=f"{models}echo", max_tokens=100, messages=asked) as stream:
        assert stream.get_final_message().content[0].text == "You said: slow words here"


def test_tokens_are_counted(client: anthropic.Anthropic) -> None:
    counted = client.messages.count_tokens(model="sandbox/echo", messages=question("hello " * 100))
    assert counted.input_tokens == 154


def test_the_beta_endpoint_is_the_same(client: anthropic.Anthropic, mirror: Product) -> None:
    message = client.beta.messages.create(
        model="mirror/mirror-echo",
        max_tokens=10,
        messages=question("hi [[sandbox tag=beta]]"),
        betas=["context-management-2025-06-27"],
    )
    assert message.content[0].text == "You said: hi"
    (sent,) = mirror.sandbox("GET", "/sandbox/requests", tag="beta")["requests"]
    headers = {name.lower(): value for name, value in sent["headers"].items()}
    assert (headers["anthropic-version"], headers["anthropic-beta"]) == ("2023-06-01", "context-management-2025-06-27")
    assert mirror.demo["apiKey"] not in json.dumps(sent)


def test_head_of_the_root_answers_as_claude_code_expects(mirror: Product) -> None:
    assert requests.head(mirror.url, timeout=60).status_code == 200

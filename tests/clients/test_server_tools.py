"""Server tools in the running product: the protocol's own example server, official clients, and one that hangs up."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from anthropic import Anthropic
from openai import OpenAI

from tests.clients import npm
from tests.clients.gateway import Gateway
from tests.stack.product import eventually, free_port
from tests.support.mcp_stand_in import running_stand_in

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]


def register(gateway: Gateway, name: str, url: str) -> None:
    """Register a server, which is asked for its tools."""
    headers = {"Authorization": f"Bearer {gateway.demo['sessionToken']}"}
    body = {"organizationId": gateway.demo["organizationId"], "name": name, "url": url}
    answer = requests.post(f"{gateway.url}/mcp-servers", json=body, headers=headers, timeout=30)
    assert answer.status_code == 200, answer.text


def tool_of(name: str) -> Any:
    """Return a server as a request of OpenAI's format names it."""
    return {"type": "mcp", "server_label": name, "require_approval": "never"}


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_hangs_up_ends_the_call_and_pays_what_was_produced(gateway: Gateway, stream: bool) -> None:
    name = f"slow-{stream}".lower()
    key = gateway.new_key(f"hangs up {stream}")
    with running_stand_in() as server:
        register(gateway, name, server.url)
        asked = {"model": "sandbox/echo", "input": f'{name}__echo({{"words": "hi"}})', "tools": [tool_of(name)]}
        body = json.dumps({**asked, "stream": stream}).encode()
        head = (
            f"POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\nAuthorization: Bearer {key.token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        server.holds = 30.0
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as client:
            client.sendall(head.encode() + body)
            eventually(lambda: "tools/call" in server.methods())
        # The tool would still take its time: the call has ended all the same.
        logs = eventually(lambda: len(found := gateway.logs_of(key)) == 2 and found)
    turn, call = sorted(logs, key=lambda log: log["route"], reverse=True)
    assert (turn["route"], turn["statusCode"], turn["unifiedFinishReason"]) == ("responses", 200, "tool_calls")
    assert turn["cost"] > 0
    assert (call["route"], call["statusCode"], call["canceled"], call["cost"]) == ("mcp_tool_call", 499, True, 0)
    assert gateway.is_paid_to_the_last_digit()


@pytest.fixture(scope="module")
def everything(request: pytest.FixtureRequest) -> Iterator[str]:
    """The protocol's own example server, over streamable HTTP; its address."""
    folder, port = npm.installed(npm.SERVER_EVERYTHING, request.config), free_port()
    program = folder / "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
    process = subprocess.Popen(
        ["node", program, "streamableHttp"],
        env={"PATH": os.environ["PATH"], "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.agents
def test_official_clients_have_the_example_servers_tools_called(gateway: Gateway, everything: str) -> None:
    register(gateway, "everything", everything)
    key = gateway.new_key("everything")
    openai: Any = OpenAI(base_url=gateway.openai_url, api_key=key.token, max_retries=0)
    asked = 'everything__get-sum({"a": 17, "b": 25}) everything__echo({"message": "hi there"})'
    whole = openai.responses.create(model="sandbox/echo", input=asked, tools=[tool_of("everything")])
    assert [item.type for item in whole.output] == ["mcp_list_tools", "mcp_call", "mcp_call", "message"]
    listed, added, echoed, _ = whole.output
    assert {"echo", "get-sum", "get-tiny-image"} <= {tool.name for tool in listed.tools}
    assert (added.error, "42" in added.output) == (None, True)
    assert (echoed.error, "hi there" in echoed.output) == (None, True)
    with openai.responses.stream(model="sandbox/echo", input=asked, tools=[tool_of("everything")]) as stream:
        final = stream.get_final_response()
    assert [item.type for item in final.output] == [item.type for item in whole.output]

    anthropic: Any = Anthropic(base_url=gateway.url, api_key=key.token, max_retries=0)
    message = anthropic.beta.messages.create(
        model="sandbox/echo",
        max_tokens=500,
        messages=[{"role": "user", "content": 'everything__get-sum({"a": 17, "b": 25})'}],
        mcp_servers=[{"type": "url", "url": everything, "name": "everything"}],
        tools=[{"type": "mcp_toolset", "mcp_server_name": "everything"}],
        betas=["mcp-client-2025-11-20"],
    )
    use, result, _ = message.content
    assert (use.type, use.name, use.server_name) == ("mcp_tool_use", "get-sum", "everything")
    assert (result.type, result.is_error, "42" in result.content[0].text) == ("mcp_tool_result", False, True)
    routes = sorted(log["route"] for log in gateway.logs_of(key))
    assert routes == [*["mcp_tool_call"] * 5, *["messages"] * 2, *["responses"] * 4]
    assert gateway.is_paid_to_the_last_digit()

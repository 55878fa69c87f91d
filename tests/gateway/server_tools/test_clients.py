"""Server tools as the official clients of both formats ask for them and read them."""

from __future__ import annotations

from typing import Any

import httpx
import httpx2
from anthropic import Anthropic
from openai import OpenAI

from apps.mcp_servers.models import McpServer
from tests.support.upstream import Caller

CALL = 'tickets__echo({"words": "hi"})'
URL = "http://gateway.test"


def http(caller: Caller, library: Any) -> Any:
    """Return a client, of the library that an SDK wants, whose requests go to the gateway in this process."""

    def post(request: Any) -> Any:
        headers = {name: value for name, value in request.headers.items() if name not in ("content-length", "host")}
        answer: Any = caller.client.post(
            request.url.path, request.content, content_type="application/json", headers=headers
        )
        body = b"".join(answer.streaming_content) if answer.streaming else answer.content
        return library.Response(answer.status_code, headers=dict(answer.items()), content=body)

    return library.Client(transport=library.MockTransport(post))


def test_openai(caller: Caller, tickets: McpServer) -> None:
    client: Any = OpenAI(base_url=f"{URL}/v1", api_key=caller.token, http_client=http(caller, httpx))
    whole = client.responses.create(
        model="sandbox/echo",
        input=CALL,
        tools=[{"type": "mcp", "server_label": "tickets", "server_url": tickets.url, "require_approval": "never"}],
    )
    assert [item.type for item in whole.output] == ["mcp_list_tools", "mcp_call", "message"]
    assert whole.output_text == "tickets__echo answered: hello"
    with client.responses.stream(
        model="sandbox/echo",
        input=CALL,
        tools=[{"type": "mcp", "server_label": "tickets", "require_approval": "never"}],
    ) as stream:
        final = stream.get_final_response()
    assert [item.type for item in final.output] == ["mcp_list_tools", "mcp_call", "message"]
    assert final.output_text == whole.output_text


def test_anthropic(caller: Caller, tickets: McpServer) -> None:
    client: Any = Anthropic(base_url=URL, api_key=caller.token, http_client=http(caller, httpx2))
    asked: dict[str, Any] = {
        "model": "sandbox/echo",
        "max_tokens": 200,
        "messages": [{"role": "user", "content": CALL}],
        "mcp_servers": [{"type": "url", "url": tickets.url, "name": "tickets"}],
        "tools": [{"type": "mcp_toolset", "mcp_server_name": "tickets"}],
        "betas": ["mcp-client-2025-11-20"],
    }
    whole = client.beta.messages.create(**asked)
    with client.beta.messages.stream(**asked) as stream:
        final = stream.get_final_message()
    for message in (whole, final):
        use, result, text = message.content
        assert (use.type, use.name, use.server_name, use.input) == ("mcp_tool_use", "echo", "tickets", {"words": "hi"})
        assert (result.type, result.is_error, result.content[0].text) == ("mcp_tool_result", False, "hello")
        assert text.text == "tickets__echo answered: hello"
        assert message.stop_reason == "end_turn"

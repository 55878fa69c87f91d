"""`/mcp/{server}` and `/mcp/all`: registered servers, asked over HTTP with an API key."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.gateway.tool_calls import listings
from apps.keys.models import IamRule
from apps.logs.models import RequestLog
from apps.mcp_servers.credentials import Credentials, encrypt_credentials
from apps.mcp_servers.models import McpServer
from tests.support.mcp_stand_in import TOKEN, StandIn, _mcp_server, mcp_server, tool
from tests.support.upstream import Caller, caller, sandbox_url, settle_all

__all__ = ["_mcp_server", "caller", "mcp_server", "sandbox_url"]
ACCEPT = "application/json, text/event-stream"


@pytest.fixture(autouse=True)
def _forget() -> None:
    listings.forget_all()


@pytest.fixture
def tickets(caller: Caller, mcp_server: StandIn) -> McpServer:
    return register(caller, "tickets", mcp_server.url)


def register(caller: Caller, name: str, url: str, **columns: Any) -> McpServer:
    sealed = encrypt_credentials(Credentials(TOKEN))
    organization_id = columns.pop("organization_id", caller.organization_id)
    return McpServer.objects.create(
        organization_id=organization_id, name=name, url=url, encrypted_credentials=sealed, **columns
    )


def post(caller: Caller, path: str, method: str, params: dict[str, Any] | None = None, **headers: str) -> Any:
    body = json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": params or {}})
    sent = {"Authorization": f"Bearer {caller.token}", "Accept": ACCEPT, **headers}
    return caller.client.post(path, body, content_type="application/json", headers=sent)


def ask(caller: Caller, path: str, method: str, params: dict[str, Any] | None = None) -> Any:
    """Ask in a session of its own; return the answer's message."""
    opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    opened = post(caller, path, "initialize", opening)
    assert opened.status_code == 200, opened.content
    session = {"Mcp-Session-Id": opened["Mcp-Session-Id"], "MCP-Protocol-Version": "2025-11-25"}
    answer = post(caller, path, method, params, **session)
    body = b"".join(answer.streaming_content) if answer.streaming else answer.content
    if answer["Content-Type"].startswith("text/event-stream"):
        lines = [line[6:] for line in body.decode().splitlines() if line.startswith("data: {")]
        return json.loads(lines[-1])
    return json.loads(body)


def names(message: Any) -> list[str]:
    return [one["name"] for one in message["result"]["tools"]]


def test_a_server_is_listed_and_called_under_its_own_names(
    caller: Caller, mcp_server: StandIn, tickets: McpServer
) -> None:
    assert names(ask(caller, "/mcp/tickets", "tools/list")) == ["echo", "add"]
    answer = ask(caller, "/mcp/tickets", "tools/call", {"name": "echo", "arguments": {"words": "hi"}})
    assert answer["result"]["content"] == [{"type": "text", "text": "hello"}]
    assert mcp_server.params_of("tools/call") == {"name": "echo", "arguments": {"words": "hi"}}
    assert mcp_server.headers_of("tools/call")["authorization"] == f"Bearer {TOKEN}"
    assert caller.token not in json.dumps([[params, headers] for _, params, headers in mcp_server.asked])
    assert settle_all() == 1
    assert RequestLog.objects.get().used_model == "tickets/echo"


def test_all_servers_are_listed_and_called_under_joined_names(
    caller: Caller, mcp_server: StandIn, tickets: McpServer
) -> None:
    long = "x" * 70
    mcp_server.tools = [tool("echo"), tool(long)]
    register(caller, "wiki", mcp_server.url, allowed_tools=["echo"])
    # A server that does not answer breaks no other.
    register(caller, "broken", mcp_server.url.replace("/mcp", ":1/"))
    listed = names(ask(caller, "/mcp/all", "tools/list"))
    assert (listed[0], listed[2]) == ("tickets__echo", "wiki__echo")
    assert listed[1].startswith("tickets__xxx")
    assert (len(listed), len(listed[1])) == (3, 64)
    answer = ask(caller, "/mcp/all", "tools/call", {"name": listed[1], "arguments": {}})
    assert answer["result"]["content"] == [{"type": "text", "text": "hello"}]
    assert mcp_server.params_of("tools/call")["name"] == long
    unknown = ask(caller, "/mcp/all", "tools/call", {"name": f"wiki__{long}", "arguments": {}})
    assert unknown["error"]["code"] == -32602


def test_access_rules_of_the_key_hold_at_every_address(caller: Caller, mcp_server: StandIn, tickets: McpServer) -> None:
    register(caller, "wiki", mcp_server.url)
    IamRule.objects.create(
        api_key=caller.key, rule_type="deny_mcp_servers", rule_value={"mcpServers": ["wiki", "tickets/echo"]}
    )
    assert names(ask(caller, "/mcp/tickets", "tools/list")) == ["add"]
    assert names(ask(caller, "/mcp/all", "tools/list")) == ["tickets__add"]
    for path, tool_name in (
        ("/mcp/tickets", "echo"),
        ("/mcp/all", "tickets__echo"),
        ("/mcp/all", "wiki__add"),
    ):
        refused = ask(caller, path, "tools/call", {"name": tool_name, "arguments": {}})
        assert refused["error"] == {"code": -32602, "message": f"Unknown tool: {tool_name}"}
    unknown = post(caller, "/mcp/wiki", "tools/list")
    assert (unknown.status_code, unknown.json()["error"]["message"]) == (404, "MCP server not found")
    assert "tools/call" not in mcp_server.methods()
    answer = ask(caller, "/mcp/all", "tools/call", {"name": "tickets__add", "arguments": {}})
    assert answer["result"]["content"] == [{"type": "text", "text": "hello"}]
    # The gateway's own tools are none of a registered server.
    assert "list-models" in names(ask(caller, "/mcp", "tools/list"))


def test_a_revision_without_handshake_asks_it_too(caller: Caller, tickets: McpServer) -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    version = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
    answer = post(caller, "/mcp/tickets", "tools/list", {"_meta": meta}, **version)
    assert answer.status_code == 200, answer.content
    assert names(answer.json()) == ["echo", "add"]


def test_a_server_that_is_not_there_or_anothers_is_404(caller: Caller, mcp_server: StandIn, tickets: McpServer) -> None:
    McpServer.objects.update(project_ids=[])
    for path in ("/mcp/tickets", "/mcp/nowhere"):
        answer = post(caller, path, "tools/list")
        assert (answer.status_code, answer.json()["error"]["message"]) == (404, "MCP server not found")
    assert mcp_server.asked == []
    nobody = caller.client.post("/mcp/tickets", b"{}", content_type="application/json")
    metadata = "/.well-known/oauth-protected-resource/mcp/tickets"
    assert (nobody.status_code, metadata in nobody["WWW-Authenticate"]) == (401, True)
    odd = caller.client.post("/mcp/a%0Ab%22", b"{}", content_type="application/json")
    assert (odd.status_code, odd.has_header("WWW-Authenticate")) == (404, False)


def test_a_session_of_one_server_is_none_of_another(caller: Caller, mcp_server: StandIn, tickets: McpServer) -> None:
    register(caller, "wiki", mcp_server.url)
    opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    session = post(caller, "/mcp/tickets", "initialize", opening)["Mcp-Session-Id"]
    answer = post(caller, "/mcp/wiki", "tools/list", **{"Mcp-Session-Id": session})
    assert answer.status_code == 404
    assert mcp_server.asked == []


def test_a_failure_of_the_server_is_a_result_that_says_so(
    caller: Caller, mcp_server: StandIn, tickets: McpServer
) -> None:
    ask(caller, "/mcp/tickets", "tools/list")
    mcp_server.failure = (500, json.dumps({"error": f"boom {TOKEN}"}).encode())
    answer = ask(caller, "/mcp/tickets", "tools/call", {"name": "echo", "arguments": {}})
    assert answer["result"]["isError"] is True
    assert answer["result"]["content"][0]["text"] == "mcp_server_failed: The MCP server answered 500: boom ..."

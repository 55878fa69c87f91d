"""`/mcp` in the era without sessions: each request says all about itself."""

from __future__ import annotations

import pytest

from apps.kernel.valkey.redis import client as valkey
from tests.mcp.conftest import (
    EARLIER,
    LATER,
    NEWEST,
    McpClient,
    chat_of,
    envelope,
    error_of,
    events_of,
    request,
)
from tests.support.upstream import Caller, nothing_happened


class TestStateless:
    """The era without sessions."""

    def test_the_server_says_what_it_is(self, mcp: McpClient) -> None:
        result = mcp.ask("server/discover").json()["result"]
        assert result["supportedVersions"] == [NEWEST, LATER, EARLIER]
        assert result["capabilities"] == {"tools": {"listChanged": False}}
        assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "model-gateway"
        assert (result["resultType"], result["cacheScope"]) == ("complete", "private")
        assert result["ttlMs"] > 0

    def test_what_the_other_era_has_is_not_there(self, mcp: McpClient) -> None:
        for method in ("initialize", "ping", "logging/setLevel", "resources/list", "subscriptions/listen"):
            error_of(mcp.ask(method), 404, -32601)
        for method in ("GET", "DELETE"):
            assert mcp.send(b"", method, mcp_protocol_version=NEWEST, last_event_id="x").status_code == 405
        answer = mcp.ask("tools/list", mcp_session_id="made-up")
        assert (answer.status_code, answer.has_header("Mcp-Session-Id")) == (200, False)

    @pytest.mark.parametrize(
        "left_out", ["io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities"]
    )
    def test_each_request_says_what_its_client_is(self, mcp: McpClient, left_out: str) -> None:
        meta = {name: value for name, value in envelope().items() if name != left_out}
        headers = {"mcp_protocol_version": NEWEST, "mcp_method": "tools/list"}
        told = error_of(mcp.send(request("tools/list", {"_meta": meta}), **headers), 400, -32602)
        assert left_out in told["message"]
        error_of(mcp.send(request("tools/list", {}), **headers), 400, -32602)
        error_of(mcp.send(request("tools/list", {"_meta": [1]}), **headers), 400, -32602)

    @pytest.mark.parametrize(
        "headers",
        [
            {"mcp_protocol_version": None},
            {"mcp_protocol_version": "v999"},
            {"mcp_method": None},
            {"mcp_method": "tools/list"},
            {"mcp_name": None},
            {"mcp_name": "list-models"},
            {"mcp_name": "=?base64?!!!?="},
        ],
    )
    def test_headers_say_what_the_body_says(
        self, mcp: McpClient, caller: Caller, headers: dict[str, str | None]
    ) -> None:
        error_of(mcp.call("chat", chat_of("hello"), **headers), 400, -32020)
        assert nothing_happened(caller)

    def test_a_packed_name_is_unpacked(self, mcp: McpClient) -> None:
        assert mcp.call("list-models", {}, mcp_name="=?base64?bGlzdC1tb2RlbHM=?=").status_code == 200

    def test_a_version_that_nobody_knows_is_answered_with_those_that_are_served(self, mcp: McpClient) -> None:
        asked = request("tools/list", {"_meta": envelope("v999")}, "a")
        answer = mcp.send(asked, mcp_protocol_version="v999", mcp_method="tools/list")
        told = error_of(answer, 400, -32022)
        assert told["data"] == {"supported": [NEWEST, LATER, EARLIER], "requested": "v999"}
        assert answer.json()["id"] == "a"

    def test_notifications_are_taken_and_answers_are_not(self, mcp: McpClient) -> None:
        note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        assert mcp.send(note, mcp_protocol_version=NEWEST).status_code == 202
        error_of(mcp.send(note, mcp_protocol_version="v999"), 400, -32022)
        answer = {"jsonrpc": "2.0", "id": 1, "result": {"_meta": envelope()}}
        error_of(mcp.send(answer, mcp_protocol_version=NEWEST), 400, -32600)

    def test_nothing_is_kept_of_a_stream(self, mcp: McpClient) -> None:
        events = events_of(mcp.call("chat", chat_of("hello"), token="t"))
        assert {event.id for event in events} == {None}
        assert not list(valkey().scan_iter("*mcp:*"))

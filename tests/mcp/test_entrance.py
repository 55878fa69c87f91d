"""`/mcp`: who gets in, and what no client of good will sends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.gateway.access import policy
from apps.kernel.valkey.redis import client as valkey
from apps.keys.models import ApiKey
from tests.mcp.conftest import (
    LATER,
    NEWEST,
    McpClient,
    chat_of,
    error_of,
    messages_of,
    request,
)
from tests.support.upstream import Caller, nothing_happened

METADATA = "http://127.0.0.1:8000/.well-known/oauth-protected-resource/mcp"


class TestWhoGetsIn:
    """Credentials."""

    @pytest.mark.parametrize(
        ("headers", "why"),
        [
            ({"authorization": None}, ""),
            ({"authorization": "Bearer gw_dev_unknown"}, 'error="invalid_token", '),
            ({"authorization": "Bearer eyJhbGciOi"}, 'error="invalid_token", '),
            ({"authorization": None, "x_api_key": "gw_dev_unknown"}, 'error="invalid_token", '),
        ],
    )
    @pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
    def test_without_a_credential_that_works_a_client_is_led_to_one(
        self, mcp: McpClient, headers: dict[str, str | None], why: str, method: str
    ) -> None:
        answer = mcp.send(request("ping"), method, **headers)
        error_of(answer, 401, -32600)
        assert answer["WWW-Authenticate"] == f'Bearer {why}resource_metadata="{METADATA}"'

    def test_either_header_brings_a_key(self, mcp: McpClient) -> None:
        assert mcp.ask("tools/list").status_code == 200
        assert mcp.ask("tools/list", authorization=None, x_api_key=mcp.token).status_code == 200

    def test_a_key_that_was_switched_off_gets_nothing_more(self, mcp: McpClient, caller: Caller) -> None:
        mcp.open(LATER)
        ApiKey.objects.filter(pk=caller.key.pk).update(status="inactive")
        policy.forget_all()
        error_of(mcp.ask("tools/list"), 401, -32600)

    def test_pages_of_other_origins_are_refused(self, mcp: McpClient) -> None:
        for origin in ("https://evil.example.com", "http://127.0.0.1.evil.example.com:8000", "null", "http://[::1"):
            told = error_of(mcp.ask("tools/list", origin=origin), 403, -32600)
            assert told["data"]["code"] == "origin_not_allowed"
        for origin in ("http://127.0.0.1:8000", "http://localhost:8000"):
            assert mcp.ask("tools/list", origin=origin).status_code == 200

    def test_a_keys_own_origins_are_all_that_it_may_be_used_at(self, mcp: McpClient, caller: Caller) -> None:
        caller.key.allowed_origins = ["https://own.example.com"]
        caller.key.save()
        policy.forget_all()
        assert mcp.ask("tools/list", origin="https://own.example.com").status_code == 200
        error_of(mcp.ask("tools/list", origin="http://127.0.0.1:8000"), 403, -32600)


class TestHostileInput:
    """Requests that no client of good will sends."""

    @pytest.mark.parametrize(
        ("body", "code"),
        [
            (b"{", -32700),
            (b"\xff\xfe", -32700),
            (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "x": NaN}', -32700),
            (b"1", -32600),
            (b"null", -32600),
            (b"[]", -32600),
            (json.dumps([request("ping"), request("ping", None, 2)]).encode(), -32600),
            (b'{"id": 1, "method": "ping"}', -32600),
            (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', -32600),
            (b'{"jsonrpc": "2.0", "id": 1}', -32600),
            (b'{"jsonrpc": "2.0", "id": 1, "method": 5}', -32600),
            (b'{"jsonrpc": "2.0", "id": 1, "method": ""}', -32600),
            (json.dumps(request("m" * 200)).encode(), -32600),
            (json.dumps(request("ping", None, None)).encode(), -32600),
            (json.dumps(request("ping", None, 1.5)).encode(), -32600),
            (json.dumps(request("ping", None, True)).encode(), -32600),
            (json.dumps(request("ping", None, {"a": 1})).encode(), -32600),
            (json.dumps(request("ping", None, "i" * 300)).encode(), -32600),
            (json.dumps(request("ping", None, 2**60)).encode(), -32600),
            (json.dumps(request("ping", [1, 2])).encode(), -32602),
            (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": ' + b"[" * 100_000, -32600),
            (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": [' + b"1," * 60_000 + b"1]}}", -32600),
            (b'{"jsonrpc": "2.0", "id": ' + b"9" * 10_000 + b', "method": "ping"}', -32600),
        ],
    )
    def test_what_is_no_message_is_an_error_of_the_protocol(self, mcp: McpClient, body: bytes, code: int) -> None:
        mcp.open(LATER)
        error_of(mcp.send(body, mcp_protocol_version=LATER), 400, code)
        assert mcp.ask("ping").status_code == 200

    def test_an_error_about_a_message_has_its_id_where_that_can_be_told(self, mcp: McpClient) -> None:
        mcp.open(LATER)
        assert mcp.send(request("", None, "mine")).json()["id"] == "mine"
        assert mcp.send(b"{").json()["id"] is None

    def test_only_json_is_read(self, mcp: McpClient) -> None:
        for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            error_of(mcp.send(request("ping"), content_type=content_type), 415, -32600)

    @pytest.mark.parametrize(
        "params",
        [
            {},
            {"name": 5},
            {"name": ""},
            {"name": "chat", "arguments": [1]},
            {"name": "chat", "arguments": chat_of("x"), "_meta": {"progressToken": {"a": 1}}},
            {"name": "chat", "arguments": chat_of("x"), "_meta": {"progressToken": "t" * 300}},
        ],
    )
    @pytest.mark.parametrize("revision", [LATER, NEWEST])
    def test_what_is_no_call_is_refused_and_costs_nothing(
        self, mcp: McpClient, caller: Caller, params: dict[str, Any], revision: str
    ) -> None:
        if revision != NEWEST:
            mcp.open(revision)
        name = params.get("name")
        headers = {} if isinstance(name, str) else {"mcp_name": None}
        error_of(mcp.ask("tools/call", params, **headers), 400, -32602)
        assert nothing_happened(caller)
        assert not list(valkey().scan_iter("*mcp:call:*"))

    def test_there_is_one_page_of_tools(self, mcp: McpClient) -> None:
        error_of(mcp.ask("tools/list", {"cursor": "x"}), 400, -32602)

    def test_long_texts_reach_the_model_whole(self, mcp: McpClient) -> None:
        text = "x" * 300_000
        (answer,) = messages_of(mcp.call("chat", chat_of(text)))
        assert answer["result"]["structuredContent"]["usage"]["prompt_tokens"] > 50_000

"""`/mcp` in the era with sessions: sessions, and streams that are resumed."""

from __future__ import annotations

from typing import Any

import pytest

from apps.kernel.valkey.redis import cache_client
from apps.kernel.valkey.redis import client as valkey
from apps.logs.models import RequestLog
from apps.mcp.protocol import answers, calls, sessions
from tests.mcp.conftest import (
    EARLIER,
    LATER,
    NEWEST,
    McpClient,
    chat_of,
    error_of,
    events_of,
    request,
)
from tests.responses.conftest import neighbour
from tests.support.upstream import Caller, nothing_happened, settle_all


class TestSessions:
    """The era with sessions."""

    @pytest.mark.parametrize("revision", [EARLIER, LATER])
    def test_a_session_is_opened_used_and_ended(self, mcp: McpClient, revision: str) -> None:
        hello = mcp.open(revision)
        assert hello["protocolVersion"] == revision
        assert hello["capabilities"] == {"tools": {"listChanged": False}}
        assert hello["serverInfo"]["name"] == "model-gateway"
        assert mcp.ask("ping").json()["result"] == {}
        # The header may be missing: the session knows.
        assert mcp.ask("ping", mcp_protocol_version=None).status_code == 200
        assert mcp.send(b"", "DELETE").status_code == 200
        error_of(mcp.ask("ping"), 404, -32600)
        error_of(mcp.send(b"", "DELETE"), 404, -32600)

    @pytest.mark.parametrize("asked", ["2024-11-05", "2025-03-26", "1999-01-01", NEWEST])
    def test_who_asks_for_what_is_not_served_in_sessions_is_offered_what_is(self, mcp: McpClient, asked: str) -> None:
        answer = mcp.send(request("initialize", {"protocolVersion": asked, "capabilities": {}, "clientInfo": {}}))
        assert answer.json()["result"]["protocolVersion"] == LATER

    def test_another_credentials_session_is_not_there(self, mcp: McpClient, caller: Caller) -> None:
        mcp.open(LATER)
        thief = McpClient(caller, neighbour(caller), session=mcp.session, revision=LATER)
        error_of(thief.ask("tools/list"), 404, -32600)
        error_of(thief.send(b"", "DELETE"), 404, -32600)
        assert mcp.ask("ping").status_code == 200

    def test_a_session_id_that_nobody_was_given_opens_nothing(self, mcp: McpClient) -> None:
        mcp.revision = LATER
        for made_up in ("x", "a" * 5_000, "é"):
            mcp.session = made_up
            error_of(mcp.ask("ping"), 404, -32600)
        assert mcp.open(LATER)
        assert mcp.session not in {"x", "a" * 5_000}

    def test_without_a_session_there_is_nothing_but_a_beginning(self, mcp: McpClient) -> None:
        mcp.revision = LATER
        error_of(mcp.send(request("tools/list")), 400, -32600)
        error_of(mcp.send(b"", "DELETE"), 400, -32600)

    def test_the_version_must_be_the_sessions(self, mcp: McpClient) -> None:
        mcp.open(EARLIER)
        for other in (LATER, "2025-03-26"):
            assert EARLIER in error_of(mcp.ask("ping", mcp_protocol_version=other), 400, -32600)["message"]

    def test_sessions_of_a_credential_are_bounded_and_expire(
        self, mcp: McpClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sessions, "MAX_SESSIONS", 2)
        mcp.open(LATER)
        first = mcp.session
        mcp.open(LATER)
        mcp.open(LATER)
        assert mcp.ask("ping").status_code == 200
        mcp.session = first
        error_of(mcp.ask("ping"), 404, -32600)
        kept = list(valkey().scan_iter("*mcp:session:*"))
        assert len(kept) == 2
        assert all(0 < valkey().ttl(key) <= sessions.SESSION_LASTS for key in kept)
        assert first not in str(kept)

    def test_methods_that_are_not_served_are_said_to_be_none(self, mcp: McpClient) -> None:
        mcp.open(LATER)
        for method in ("resources/list", "prompts/get", "logging/setLevel", "server/discover", "nonsense"):
            error_of(mcp.ask(method), 200, -32601)

    def test_answers_and_notifications_are_taken_and_not_answered(self, mcp: McpClient) -> None:
        mcp.open(LATER)
        for body in (
            {"jsonrpc": "2.0", "id": 7, "result": {}},
            {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"},
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}},
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": {"a": 1}}},
        ):
            answer = mcp.send(body)
            assert (answer.status_code, answer.content) == (202, b"")
        assert not list(valkey().scan_iter("*mcp:call:*"))


class TestStreams:
    """Streams of calls in sessions, and their being resumed."""

    @pytest.mark.parametrize("revision", [EARLIER, LATER])
    def test_a_stream_is_resumed_with_exactly_what_is_missing(self, mcp: McpClient, revision: str) -> None:
        mcp.open(revision)
        whole = events_of(mcp.call("chat", chat_of("[[sandbox words=20 chunks=4 gap=110]] count"), token="t"))
        if revision == LATER:
            primed, *whole = whole
            assert (primed.id, primed.message) == (whole[0].id.replace(".1", ".0"), None)
        assert len(whole) >= 3
        assert whole[-1].message["result"]["isError"] is False
        for place, event in enumerate(whole):
            rest = mcp.send(b"", "GET", last_event_id=event.id, mcp_protocol_version=revision)
            assert events_of(rest) == whole[place + 1 :]
        assert settle_all() == 1
        assert RequestLog.objects.count() == 1

    def test_streams_lie_encrypted_and_expire(self, mcp: McpClient) -> None:
        mcp.open(LATER)
        events_of(mcp.call("chat", chat_of("a falcon")))
        (key,) = cache_client().scan_iter("*mcp:stream:*")
        assert "falcon" not in str(cache_client().lrange(key, 0, -1))
        assert 0 < cache_client().ttl(key) <= sessions.LASTS

    def test_a_stream_is_its_sessions_alone(self, mcp: McpClient, caller: Caller) -> None:
        mcp.open(LATER)
        last = events_of(mcp.call("chat", chat_of("a falcon")))[0].id
        mcp.open(LATER)
        error_of(mcp.send(b"", "GET", last_event_id=last), 400, -32600)
        thief = McpClient(caller, neighbour(caller))
        thief.open(LATER)
        error_of(thief.send(b"", "GET", last_event_id=last), 400, -32600)

    @pytest.mark.parametrize("made_up", ["1", "x.1", "0" * 32 + ".1", "0" * 32 + ".-1", "0" * 32 + ".9999999999", "é"])
    def test_an_event_that_nobody_was_sent_resumes_nothing(self, mcp: McpClient, made_up: str) -> None:
        mcp.open(LATER)
        error_of(mcp.send(b"", "GET", last_event_id=made_up), 400, -32600)

    def test_a_place_behind_the_end_resumes_nothing(self, mcp: McpClient) -> None:
        mcp.open(LATER)
        stream = str(events_of(mcp.call("list-models", {}))[0].id).partition(".")[0]
        error_of(mcp.send(b"", "GET", last_event_id=f"{stream}.50"), 400, -32600)

    def test_there_is_no_stream_that_is_no_answer(self, mcp: McpClient) -> None:
        mcp.open(LATER)
        answer = mcp.send(b"", "GET")
        assert (answer.status_code, answer["Allow"]) == (405, "POST, DELETE")

    @pytest.mark.parametrize("bound", ["the stream's", "the organization's"])
    def test_a_stream_too_long_to_be_kept_is_told_all_the_same(
        self, mcp: McpClient, monkeypatch: pytest.MonkeyPatch, settings: Any, bound: str
    ) -> None:
        if bound == "the stream's":
            monkeypatch.setattr(sessions, "MAX_BYTES", 300)
        else:
            settings.CACHE_BYTES_BY_PLAN = dict.fromkeys(settings.CACHE_BYTES_BY_PLAN, 1_200)
        mcp.open(LATER)
        primed, *whole = events_of(mcp.call("list-models", {}))
        assert whole[-1].message["result"]["isError"] is False
        assert not list(cache_client().scan_iter("*mcp:stream:*"))
        error_of(mcp.send(b"", "GET", last_event_id=primed.id), 400, -32600)

    def test_a_call_whose_worker_is_lost_ends_with_an_error(
        self, mcp: McpClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mcp.open(LATER)
        primed = events_of(mcp.call("list-models", {}))[0]
        (key,) = cache_client().scan_iter("*mcp:stream:*")
        # All but its beginning.
        cache_client().ltrim(key, 0, 0)
        monkeypatch.setattr(answers, "_ALIVE_SECONDS", 0.01)
        (lost,) = events_of(mcp.send(b"", "GET", last_event_id=primed.id))
        assert (lost.message["id"], lost.message["error"]["code"]) == (1, -32603)

    def test_an_id_is_not_used_twice_at_a_time(self, mcp: McpClient) -> None:
        mcp.open(LATER)
        events_of(mcp.call("list-models", {}))
        (key,) = cache_client().scan_iter("*mcp:stream:*")
        name = key[key.index("mcp:stream:") :]
        valkey().set(name.replace("mcp:stream:", "mcp:call:"), "running", ex=5)
        again = mcp.send(request("tools/call", {"name": "list-models"}, 1), mcp_protocol_version=LATER)
        assert "is running" in error_of(again, 400, -32600)["message"]

    def test_who_reads_no_streams_gets_whole_answers(self, mcp: McpClient) -> None:
        mcp.open(LATER)
        for accept in ("application/json", "*/*", None):
            answer = mcp.call("chat", chat_of("hello"), token="t", accept=accept)
            assert answer["Content-Type"] == "application/json"
            assert answer.json()["result"]["structuredContent"]["content"] == "You said: hello"
        error_of(mcp.call("chat", chat_of("hello"), accept="text/html"), 406, -32600)

    def test_calls_at_a_time_are_bounded(self, mcp: McpClient, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(calls, "MAX_CALLS_OF_ONE", 0)
        answer = mcp.call("chat", chat_of("hello"))
        error_of(answer, 503, -32603)
        assert answer["Retry-After"] == "2"
        assert nothing_happened(caller)

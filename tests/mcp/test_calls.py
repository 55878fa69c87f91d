"""Calls under way: what other workers want of them, and what becomes of them when their client leaves."""

from __future__ import annotations

from typing import Any

import pytest

from apps.gateway.access.policy import find_policy
from apps.kernel.concurrency.fairness import FairShare
from apps.kernel.errors import Overloaded, RateLimited
from apps.kernel.ids import new_id
from apps.kernel.valkey.cache_store import CacheShare
from apps.kernel.valkey.redis import client as valkey
from apps.mcp.protocol import answers, calls, sessions
from apps.mcp.protocol.calls import Call
from apps.mcp.protocol.calls import Caller as McpCaller
from apps.mcp.protocol.jsonrpc import RpcRequest
from apps.mcp.protocol.sessions import Position, Session, StreamLog
from apps.mcp.tools import GatewayTools
from tests.mcp.conftest import LATER
from tests.support.upstream import Caller


@pytest.fixture
def session(caller: Caller) -> Session:
    """An open session of the caller's."""
    opened = sessions.open_session("key:x", "mcp", LATER)
    found = sessions.find_session(opened, "key:x", "mcp")
    assert found is not None
    return found


def call_of(caller: Caller, session: Session | None, request_id: Any = 1) -> Call:
    """Return a call that has not begun, its stream kept where there is a session."""
    asking = McpCaller(token=caller.token, policy=find_policy(caller.token), binding="key:x")
    request = RpcRequest(id=request_id, method="tools/call", params={"name": "list-models", "arguments": {}})
    share = CacheShare.of(asking.policy.organization_id, asking.policy.plan)
    kept = None if session is None else StreamLog(session, share, request_id)
    if kept is not None:
        assert kept.begin()
    return Call(GatewayTools(), asking, request, {}, kept)


def test_a_cancellation_at_another_worker_reaches_the_call(caller: Caller, session: Session) -> None:
    mine, other = call_of(caller, session, "a"), call_of(caller, session, "b")
    calls._look([mine, other])
    assert (mine.switch.is_thrown, other.switch.is_thrown) == (False, False)
    sessions.ask_to_cancel(session, "a")
    calls._look([mine, other])
    assert (mine.switch.is_thrown, other.switch.is_thrown) == (True, False)


def test_calls_end_with_their_session(caller: Caller, session: Session) -> None:
    call = call_of(caller, session)
    sessions.end_session(session)
    calls._look([call])
    assert call.switch.is_thrown


def test_a_look_renews_the_lease_on_a_call(caller: Caller, session: Session) -> None:
    call = call_of(caller, session)
    assert call.kept is not None
    valkey().expire(call.kept.call_key, 2)
    calls._look([call])
    assert valkey().ttl(call.kept.call_key) > 2
    assert sessions.is_running(session, call.kept.stream)
    call.kept.end()
    assert not sessions.is_running(session, call.kept.stream)


def test_nothing_is_left_of_a_cancellation_of_what_nobody_answers(session: Session) -> None:
    sessions.ask_to_cancel(session, "never begun")
    assert not list(valkey().scan_iter("*mcp:call:*"))


def test_whose_client_leaves_goes_on_where_it_can_be_resumed(caller: Caller, session: Session) -> None:
    kept, alone = call_of(caller, session), call_of(caller, None)
    kept.leave()
    alone.leave()
    assert (kept.switch.is_thrown, alone.switch.is_thrown) == (False, True)


def test_ids_of_other_kinds_and_sessions_are_other_streams(session: Session) -> None:
    other = Session(digest=str(new_id()), revision=LATER, binding="key:x", endpoint="mcp")
    names = {sessions.stream_of(one, request_id) for one in (session, other) for request_id in (1, "1")}
    assert len(names) == 4


def test_one_organizations_resumed_streams_leave_places_to_others(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "RESUMED", FairShare(2, 1, "resumed streams"))
    one, other, third = (CacheShare(new_id(), 1_000) for _ in range(3))
    position = Position("0" * 32, 0)
    first = answers.resumed_answer(session, one, 1, position)
    with pytest.raises(RateLimited):
        answers.resumed_answer(session, one, 2, position)
    answers.resumed_answer(session, other, 3, position)
    with pytest.raises(Overloaded):
        answers.resumed_answer(session, third, 4, position)
    body: Any = first.body
    body.close()
    body.close()
    assert answers.resumed_answer(session, one, 5, position).status == 200


def test_one_organizations_calls_leave_room_to_others_however_many_keys_it_has(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way = [call_of(caller, None) for _ in range(2)]
    for number, call in enumerate(under_way):
        call.binding = f"key:{number}"
    monkeypatch.setattr(calls, "_calls", set(under_way))
    monkeypatch.setattr(calls, "MAX_CALLS_OF_ORGANIZATION", 2)
    with pytest.raises(Overloaded):
        call_of(caller, None).start()
    assert calls._calls == set(under_way)
    under_way[0].organization_id = new_id()
    call_of(caller, None).start()
    assert calls._calls == set(under_way)

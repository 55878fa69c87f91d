"""Each call to a store or a provider fails once, in each way: answers stay whole or clear, and the books agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.proofs.failing_calls import Gateway, fail_each_call, gateway, streamed_answer, table, whole_answer
from tests.proofs.fault_injection import Target, injectable
from tests.proofs.invariants import Answer
from tests.support.upstream import Caller, backup, caller, sandbox_url

__all__ = ["backup", "caller", "gateway", "injectable", "sandbox_url", "table"]

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.single_server]


def ask(caller: Caller, request: str, content: str = "hello", **fields: Any) -> Any:
    headers = {"x-request-id": request, **fields.pop("headers", {})}
    return caller.chat(content, headers=headers, max_tokens=20, **fields)


def ask_whole(caller: Caller, request: str) -> list[Answer]:
    response = ask(caller, request)
    return [whole_answer(request, response.status_code, response.content)]


def ask_stream(caller: Caller, request: str, content: str = "hello", **fields: Any) -> list[Answer]:
    response = ask(caller, request, content, stream=True, **fields)
    body = b"".join(response.streaming_content) if response.streaming else response.content
    return [streamed_answer(request, response.status_code, body)]


@pytest.mark.parametrize("target", Target)
def test_a_request_with_a_call_that_fails(gateway: Gateway, target: Target) -> None:
    tally = fail_each_call(gateway, "plain", lambda request: ask_whole(gateway.caller, request), target)
    assert tally.problems == []
    assert tally.runs >= 4


@pytest.mark.parametrize(
    "target", [Target.VALKEY, Target.UPSTREAM, pytest.param(Target.POSTGRES, marks=pytest.mark.long)]
)
def test_a_stream_with_a_call_that_fails(gateway: Gateway, target: Target) -> None:
    tally = fail_each_call(gateway, "stream", lambda request: ask_stream(gateway.caller, request), target)
    assert tally.problems == []


@pytest.mark.parametrize("target", [Target.VALKEY, Target.POSTGRES])
def test_a_settlement_with_a_call_that_fails(gateway: Gateway, target: Target) -> None:
    def prepare() -> None:
        for number in range(2):
            gateway.answers += ask_whole(gateway.caller, f"{number}-{len(gateway.answers)}")

    def settle(_: str) -> Sequence[Answer]:
        gateway.settle()
        return []

    tally = fail_each_call(gateway, "settlement", settle, target, prepare=prepare)
    assert tally.problems == []


@pytest.mark.parametrize("target", [Target.VALKEY, Target.UPSTREAM])
@pytest.mark.long
def test_a_hedged_stream_with_a_call_that_fails(gateway: Gateway, backup: str, target: Target) -> None:
    def hedged(request: str) -> list[Answer]:
        return ask_stream(gateway.caller, request, "hello [[sandbox latency=90]]", headers={"x-hedge": "50"})

    tally = fail_each_call(gateway, "hedged", hedged, target)
    assert tally.problems == []

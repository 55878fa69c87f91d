"""Each call to a store or a provider fails once, in each way: answers stay whole or clear, and the books agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.proofs.failing_calls import (
    Gateway,
    fail_each_call,
    gateway,
    sampled_or_each,
    streamed_answer,
    table,
    whole_answer,
)
from tests.proofs.fault_injection import Injection, Target, inject, injectable
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


STORES = [Target.VALKEY, Target.POSTGRES]
EVERYWHERE = [*STORES, Target.UPSTREAM]


@sampled_or_each
@pytest.mark.parametrize("target", EVERYWHERE)
def test_a_request_with_a_call_that_fails(gateway: Gateway, target: Target, step: int) -> None:
    tally = fail_each_call(gateway, "plain", lambda request: ask_whole(gateway.caller, request), target, step=step)
    assert tally.problems == []
    assert tally.runs >= (2 if step > 1 else 12)


@sampled_or_each
@pytest.mark.parametrize("target", EVERYWHERE)
def test_a_stream_with_a_call_that_fails(gateway: Gateway, target: Target, step: int) -> None:
    tally = fail_each_call(gateway, "stream", lambda request: ask_stream(gateway.caller, request), target, step=step)
    assert tally.problems == []


@sampled_or_each
@pytest.mark.parametrize("target", STORES)
def test_a_settlement_with_a_call_that_fails(gateway: Gateway, target: Target, step: int) -> None:
    def prepare() -> None:
        for number in range(2):
            gateway.answers += ask_whole(gateway.caller, f"{number}-{len(gateway.answers)}")

    def settle(_: str) -> Sequence[Answer]:
        gateway.settle()
        return []

    tally = fail_each_call(gateway, "settlement", settle, target, prepare=prepare, step=step)
    assert tally.problems == []


@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.long
def test_a_hedged_stream_with_a_call_that_fails(gateway: Gateway, backup: str, target: Target) -> None:
    def hedged(request: str) -> list[Answer]:
        return ask_stream(gateway.caller, request, "hello [[sandbox latency=90]]", headers={"x-hedge": "50"})

    tally = fail_each_call(gateway, "hedged", hedged, target)
    assert tally.problems == []


def test_a_record_that_the_store_refuses_with_a_call_to_the_disk_that_fails(gateway: Gateway) -> None:
    def ask(request: str) -> list[Answer]:
        return ask_whole(gateway.caller, request)

    tally = fail_each_call(gateway, "spooled", ask, Target.DISK, is_store_deaf=True)
    assert tally.problems == []
    # The record is in memory until the disk or the store takes it.
    assert tally.answered == tally.runs >= 6


def test_a_replay_of_the_spool_with_a_call_to_the_disk_that_fails(gateway: Gateway) -> None:
    def prepare() -> None:
        with inject(Injection(Target.DISK, is_store_deaf=True)):
            for _ in range(2):
                gateway.answers += ask_whole(gateway.caller, f"spooled-{len(gateway.answers)}")

    def replay(_: str) -> Sequence[Answer]:
        gateway.beat()
        return []

    tally = fail_each_call(gateway, "replay of the spool", replay, Target.DISK, prepare=prepare)
    assert tally.problems == []
    assert tally.runs >= 4

"""An operator empties Valkey (`FLUSHALL`) at any step: every answer is billed once all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from apps.gateway.settlement import outbox
from apps.kernel.valkey.redis import client as valkey
from tests.proofs.failing_calls import Gateway, gateway, table
from tests.proofs.fault_injection import Injection, Target, inject, injectable
from tests.proofs.test_failing_calls import ask_stream, ask_whole
from tests.support.upstream import caller, sandbox_url

__all__ = ["caller", "gateway", "injectable", "sandbox_url", "table"]

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.single_server]

REQUESTS = 100


def empty_store() -> None:
    valkey().flushall()


def test_a_hundred_answers_are_billed_once_though_the_store_is_emptied_at_every_step(gateway: Gateway) -> None:
    gateway.begin()
    emptied = 0
    for number in range(REQUESTS):
        # One call later each time: of the request, of the heartbeat and the settlement that follow, or after all.
        injection = Injection(Target.VALKEY, 1 + number % 25, beside=empty_store)
        ask = ask_stream if number % 2 else ask_whole
        with inject(injection):
            gateway.answers += ask(gateway.caller, f"request-{number}")
            if number % 3 == 0:
                gateway.beat()
            if number % 4 == 0:
                gateway.settle()
        if not injection.has_struck:
            empty_store()
        emptied += 1
    gateway.recover()
    assert gateway.problems() == []
    assert (len(gateway.answers), emptied) == (REQUESTS, REQUESTS)
    assert all(answer.cost for answer in gateway.answers)


@pytest.mark.parametrize("work", ["beat", "settle", "ask"])
def test_the_store_is_emptied_before_each_call(gateway: Gateway, work: str) -> None:
    def ask() -> None:
        gateway.answers += ask_whole(gateway.caller, f"{work}-{len(gateway.answers)}")

    works: dict[str, Callable[[], Any]] = {"beat": gateway.beat, "settle": gateway.settle, "ask": ask}
    counted = Injection(Target.VALKEY)
    number = 0
    while number <= len(counted.calls):
        gateway.begin()
        for _ in range(2):
            ask()
        injection = counted if not number else Injection(Target.VALKEY, number, beside=empty_store)
        with inject(injection):
            works[work]()
        gateway.recover()
        assert (number, gateway.problems()) == (number, [])
        number += 1
    assert number > 2
    assert all(answer.cost for answer in gateway.answers)


def test_what_is_emptied_while_no_record_waits_is_pushed_no_second_time(gateway: Gateway) -> None:
    gateway.begin()
    gateway.answers += ask_whole(gateway.caller, "settled")
    gateway.settle()
    empty_store()
    assert gateway.retransmission.look() == 0
    assert valkey().xlen(outbox.STREAMS[0]) == 0

"""Nothing is spent that is not held, and many at once on modest credits all get a useful part."""

from __future__ import annotations

from uuid import uuid4

import pytest

from apps.billing import balances
from apps.gateway.answer_meter import LEAST_STEP
from apps.kernel.valkey.redis import client as valkey
from apps.logs.models import RequestLog
from tests.support.credits_left import (
    BIG,
    CENT,
    SLIP,
    chunks_in,
    credited,
    credits_of,
    held,
    opened,
    priced,
)
from tests.support.model_routes import post
from tests.support.upstream import Caller, settle_all


@pytest.mark.parametrize("stream", [False, True])
def test_a_cent_buys_no_answers_for_a_dollar(caller: Caller, stream: bool) -> None:
    credited(caller, CENT)
    statuses = [post(caller, "chat", f"go on {BIG}", stream=stream, max_tokens=None).status for _ in range(15)]
    settle_all()
    assert statuses[0] == 200
    assert set(statuses) <= {200, 402}
    assert -SLIP < credits_of(caller) < CENT / 2
    assert held(caller) == 0


def test_streams_side_by_side_spend_no_more_than_there_is(caller: Caller) -> None:
    credited(caller, CENT)
    streams = {number: opened(caller, f"go on {BIG} number {number}") for number in range(12)}
    told: dict[int, list[bytes]] = {number: [] for number in streams}
    while streams:
        for number in list(streams):
            piece = next(streams[number], None)
            if piece is None:
                del streams[number]
            else:
                told[number].append(piece)
        assert held(caller) <= CENT
    assert settle_all() == 12
    assert -SLIP < credits_of(caller) < CENT / 2
    assert held(caller) == 0
    for pieces in told.values():
        *_, last, done = chunks_in(b"".join(pieces))
        assert (last["choices"][0]["finish_reason"], done) == ("length", "[DONE]")
    # Each came to write something.
    assert all((row.completion_tokens or 0) >= LEAST_STEP for row in RequestLog.objects.all())


@pytest.mark.parametrize("stream", [False, True])
def test_twenty_at_once_on_a_dollar_all_get_a_useful_part_of_a_dear_model(caller: Caller, stream: bool) -> None:
    priced("75", max_output=131_072, context_length=200_000)
    credited(caller, "1")
    if stream:
        streams = [opened(caller, f"number {number} [[sandbox words=150]]") for number in range(20)]
        assert 0 < held(caller) <= 1
        ends = [chunks_in(b"".join(pieces))[-2]["choices"][0]["finish_reason"] for pieces in streams]
        assert ends == ["stop"] * 20
        return
    # All of them are held for at the same time, as if none was answered yet.
    limits: list[int] = []
    for _ in range(20):
        tag = uuid4().hex
        assert post(caller, "chat", f"go on [[sandbox tag={tag} words=50]]", max_tokens=None).status == 200
        limits.append(caller.sent(tag)[0]["body"]["max_tokens"])
        valkey().hset(balances.key("organization", caller.organization_id), "held", sum(limits) * 75_000)
        assert held(caller) <= 1
    assert limits == sorted(limits, reverse=True)
    assert limits[0] > 1_000
    assert limits[-1] >= 150

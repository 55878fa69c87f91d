"""Extensions of holds, while stores, workers and clients come and go."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from apps.billing import reservations
from apps.billing.worker_leases import WORKERS, worker_name
from apps.gateway.settlement import settle
from apps.kernel.money import NANO
from apps.kernel.valkey.redis import client as valkey
from apps.logs.models import RequestLog
from tests.support.credits_left import (
    HEEDLESS,
    chunks_in,
    held,
    opened,
    priced,
)
from tests.support.model_routes import post
from tests.support.upstream import Caller, settle_all


def test_an_extension_that_the_store_cannot_answer_lets_the_answer_go_on(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    extend, asked = reservations.extend, []

    def away(*words: Any) -> reservations.HoldExtension:
        asked.append(words)
        if len(asked) > 1:
            return extend(*words)
        raise RedisConnectionError("away")

    monkeypatch.setattr(reservations, "extend", away)
    priced("0.6", max_output=4_096)
    *_, last, done = chunks_in(post(caller, "chat", f"hi {HEEDLESS}", stream=True, max_tokens=None).content)
    assert (last["choices"][0]["finish_reason"], done) == ("stop", "[DONE]")
    # It is asked again, for the part that was passed on meanwhile as well.
    assert 2 <= len(asked) <= 18
    settle_all()
    assert held(caller) == 0


def test_an_extension_whose_answer_was_lost_is_given_back(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    extend = reservations.extend

    def lost(*words: Any) -> reservations.HoldExtension:
        extend(*words)
        raise RedisConnectionError("lost on its way back")

    monkeypatch.setattr(reservations, "extend", lost)
    priced("0.6", max_output=4_096)
    assert post(caller, "chat", f"hi {HEEDLESS}", stream=True, max_tokens=None).status == 200
    assert held(caller) == Decimal(102_400 * 600 + 3 * 150) / NANO or held(caller) < Decimal("0.07")
    settle_all()
    assert held(caller) == 0
    assert reservations.notes_of(worker_name(), 0) == {}


def test_who_dies_after_an_extension_leaves_nothing_held(caller: Caller) -> None:
    priced("0.6", max_output=4_096)
    stream = opened(caller, "hi [[sandbox kb=100 heedless chunk=2000]]")
    for _ in range(30):
        next(stream)
    (identifier,) = reservations.notes_of(worker_name(), 0)
    note = reservations.notes_of(worker_name(), 0)[identifier]
    assert held(caller) * NANO == int(note.amount) > 8_192 * 600
    # The sweeper finds the note, with all that it has come to hold; the worker's own end finds nothing any more.
    valkey().zadd(WORKERS[0], {worker_name(): 0})
    assert settle.sweep() == 1
    settle_all()
    assert (held(caller), reservations.notes_of(worker_name(), 0)) == (0, {})
    assert b"[DONE]" in b"".join(stream)
    settle_all()
    assert held(caller) == 0
    row = RequestLog.objects.get()
    assert row.pk == UUID(str(identifier))


def test_who_leaves_after_an_extension_holds_what_was_written(caller: Caller) -> None:
    priced("0.6", max_output=4_096)
    stream = opened(caller, "hi [[sandbox kb=100 heedless chunk=2000]]")
    for _ in range(30):
        next(stream)
    before = held(caller)
    stream.close()
    assert 0 < held(caller) < before
    settle_all()
    row = RequestLog.objects.get()
    assert (row.canceled, held(caller)) == (True, 0)
    assert 13_000 < (row.completion_tokens or 0) < 16_000


def test_an_answer_from_the_cache_holds_nothing_more(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    project = caller.key.project
    project.caching_enabled, project.cache_duration_seconds = True, 60
    project.save()
    priced("0.6", max_output=4_096)
    first = post(caller, "chat", f"hi {HEEDLESS}", stream=True, max_tokens=None)
    monkeypatch.setattr(reservations, "extend", None)
    second = post(caller, "chat", f"hi {HEEDLESS}", stream=True, max_tokens=None)
    assert (first.headers["x-gateway-cache"], second.headers["x-gateway-cache"]) == ("miss", "hit")
    assert chunks_in(second.content)[-1] == "[DONE]"


def test_a_request_that_was_let_through_unreserved_is_not_extended(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> None:
        raise RedisConnectionError("away")

    monkeypatch.setattr(reservations, "reserve", away)
    monkeypatch.setattr(reservations, "extend", None)
    priced("0.6", max_output=4_096)
    assert chunks_in(post(caller, "chat", f"hi {HEEDLESS}", stream=True, max_tokens=None).content)[-1] == "[DONE]"

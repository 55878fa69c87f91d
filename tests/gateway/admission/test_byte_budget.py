"""The byte budget: who is refused at which size, and that everything is given back; exact, without requests."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from apps.gateway.admission import byte_budget
from apps.gateway.admission.byte_budget import ByteReservation, IncomingBody, read_body
from apps.gateway.metrics import BYTES_IN_FLIGHT
from apps.kernel.concurrency.native_thread_pool import LARGE
from apps.kernel.errors import Overloaded, RateLimited
from apps.kernel.ids import new_id

OURS, THEIRS = new_id(), new_id()


@pytest.fixture(autouse=True)
def budget(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A worker that may hold 1,000 bytes, 600 of them for one organization, and holds none."""
    settings.WORKER_BYTES_IN_FLIGHT, settings.ORGANIZATION_BYTES_IN_FLIGHT = 1_000, 600
    monkeypatch.setattr(byte_budget, "_collecting", False)
    gc.collect()
    held = byte_budget._held.copy()
    byte_budget._held.clear()
    yield
    gc.collect()
    byte_budget._held.clear()
    byte_budget._held.update(held)


def reserved(size: int, organization: Any = OURS) -> ByteReservation:
    one = ByteReservation(organization)
    one.reserve(size)
    return one


def test_an_organization_has_its_budget_and_one_request_may_be_larger() -> None:
    first = reserved(400)
    second = reserved(200)
    with pytest.raises(RateLimited) as raised:
        reserved(1)
    message = (
        "Requests and answers of 600 bytes are under way for this organization; with 1 more it would be more than 600: "
        "send fewer large requests at once"
    )
    assert (raised.value.message, raised.value.code, raised.value.retry_after) == (
        message,
        "bytes_in_flight_exceeded",
        2,
    )
    assert dict(byte_budget._held) == {OURS: 600}
    first.release()
    first.release()
    second.release()
    assert dict(byte_budget._held) == {}
    alone = reserved(5_000)
    assert alone.size == 5_000
    alone.release()


def test_a_worker_has_its_budget_for_all_organizations() -> None:
    first, second = reserved(500), reserved(500, THEIRS)
    with pytest.raises(Overloaded, match="Too many large requests are under way") as raised:
        reserved(1, new_id())
    assert raised.value.retry_after == 2
    assert dict(byte_budget._held) == {OURS: 500, THEIRS: 500}
    second.release()
    reserved(500, THEIRS).release()
    first.release()


def test_answers_have_twice_the_budget_unless_they_are_alone() -> None:
    before = BYTES_IN_FLIGHT._value.get()
    alone = ByteReservation(OURS)
    alone.reserve_for_answer(9_000)
    assert (alone.size, BYTES_IN_FLIGHT._value.get() - before) == (9_000, 9_000)
    alone.release()
    first, second = reserved(1), ByteReservation(OURS)
    second.reserve_for_answer(1_199)
    with pytest.raises(Overloaded, match="Too many large answers are under way"):
        second.reserve_for_answer(1)
    # It is given back with the request, which ends.
    assert dict(byte_budget._held) == {OURS: 1_201}
    second.release()
    third = ByteReservation(THEIRS)
    third.reserve_for_answer(1_999)
    with pytest.raises(Overloaded, match="Too many large answers are under way") as raised:
        third.reserve_for_answer(1)
    assert raised.value.retry_after == 2
    third.release()
    first.release()
    assert (dict(byte_budget._held), BYTES_IN_FLIGHT._value.get() - before) == ({}, 0)


def test_a_reservation_that_was_forgotten_is_given_back() -> None:
    reserved(10)
    gc.collect()
    assert dict(byte_budget._held) == {}


def test_memory_is_collected_once_after_large_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[Any] = []
    monkeypatch.setattr(byte_budget.gevent, "spawn_later", lambda *plan: planned.append(plan))
    reserved(4 * 1024 * 1024 - 1).release()
    assert planned == []
    for _ in range(2):
        reserved(4 * 1024 * 1024).release()
    assert planned == [(2.0, byte_budget._collect)]
    byte_budget._collect()
    reserved(4 * 1024 * 1024).release()
    assert len(planned) == 2
    byte_budget._collect()


class Sent:
    """A call whose client says how long its body is, or does not."""

    def __init__(self, body: bytes, stated: int | None, *, is_streamable: bool = False, limit: int = 10**9) -> None:
        self._body, self.content_length, self.is_streamable, self.body_limit = body, stated, is_streamable, limit
        self.byte_reservation: ByteReservation | None = None
        self.held_before = -1

    def body(self) -> bytes:
        assert self.byte_reservation is not None
        self.held_before = self.byte_reservation.size
        return self._body

    def body_pieces(self, limit: int) -> Iterator[bytes]:
        assert self.byte_reservation is not None
        self.held_before = self.byte_reservation.size
        yield from (self._body[:3], self._body[3:])


@pytest.mark.parametrize(
    ("size", "stated", "limit", "before", "after"),
    [
        (LARGE, LARGE, 10**9, 0, 0),
        (LARGE + 1, LARGE + 1, 10**9, LARGE + 1, LARGE + 1),
        # Chunked: known once it was read.
        (LARGE + 5, None, 10**9, 0, LARGE + 5),
        (LARGE, None, 10**9, 0, 0),
        # Packed: it takes more than was stated.
        (3 * LARGE, LARGE + 9, 10**9, LARGE + 9, 3 * LARGE),
        (9, LARGE + 9, 10**9, LARGE + 9, LARGE + 9),
        # One beyond the limit is refused when it is read; one that has it as its size is not.
        (9, LARGE + 9, LARGE + 8, 0, 0),
        (LARGE + 9, LARGE + 9, LARGE + 9, LARGE + 9, LARGE + 9),
    ],
)
def test_a_body_is_counted_from_before_it_is_read(
    size: int, stated: int | None, limit: int, before: int, after: int, settings: Any
) -> None:
    settings.WORKER_BYTES_IN_FLIGHT = settings.ORGANIZATION_BYTES_IN_FLIGHT = 10**9
    sent: Any = Sent(bytes(size), stated, limit=limit)
    body, hold = read_body(sent, OURS)
    assert (len(body), sent.held_before, hold.size) == (size, before, after)
    assert sent.byte_reservation is hold
    hold.release()


@pytest.mark.parametrize(
    ("stated", "is_streamable", "held"),
    [
        (9, True, 0),
        (None, True, 0),
        (LARGE, True, 0),
        (LARGE + 1, True, LARGE + 1),
        # However large it is, its pieces take up no more.
        (10**8, True, 4 * 1024 * 1024),
    ],
)
def test_a_body_that_is_read_as_it_comes_counts_with_its_pieces(
    stated: int | None, is_streamable: bool, held: int
) -> None:
    sent: Any = Sent(b"abcdef", stated, is_streamable=is_streamable)
    incoming = IncomingBody(sent, OURS, 10**9)
    assert incoming.left == (stated or 0)
    pieces = [(piece, incoming.left) for piece in incoming]
    assert pieces == [(b"abc", (stated or 0) - 3), (b"def", (stated or 0) - 6)]
    assert sent.held_before == held
    sent.byte_reservation.release()


def test_a_body_that_had_to_be_read_whole_comes_in_pieces() -> None:
    sent: Any = Sent(bytes(65_536) + b"rest", None)
    incoming = IncomingBody(sent, OURS, 10**9)
    assert incoming.left == 65_540
    assert [(len(piece), incoming.left) for piece in incoming] == [(65_536, 4), (4, 0)]
    sent.byte_reservation.release()

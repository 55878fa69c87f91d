"""Records that the store lost before they were settled: pushed again, and charged once."""

from __future__ import annotations

import time
from collections import deque

import pytest
from django.db import OperationalError
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from apps.gateway.metrics import RECORDS_RETRANSMITTED
from apps.gateway.settlement import outbox, retransmission
from apps.gateway.settlement.outbox import PushedRecord, RetransmissionBuffer
from apps.gateway.settlement.retransmission import Retransmission
from apps.kernel.postgres import database
from apps.kernel.valkey.redis import ServerState, client
from tests.support.upstream import Caller, nothing_happened, settle_all


class Server:
    """The store's report about its server: that it goes on, evicts, or was started again."""

    def __init__(self) -> None:
        self.state = ServerState("one run", 0)

    def evicts(self) -> None:
        """Lose all that waits to be settled."""
        client().delete(outbox.STREAMS[0])
        outbox.prepare()
        self.state = self.state._replace(evicted_keys=self.state.evicted_keys + 1)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def looks(server: Server) -> Retransmission:
    """A worker that has looked once."""
    looks = Retransmission(lambda: server.state)
    assert looks.look() == 0
    return looks


def test_what_was_evicted_before_it_was_settled_is_charged_once(
    caller: Caller, server: Server, looks: Retransmission
) -> None:
    assert caller.chat("settled").status_code == 200
    assert settle_all() == 1
    assert [caller.chat(f"lost {number}").status_code for number in range(2)] == [200] * 2
    server.evicts()
    assert settle_all() == 0
    counted = RECORDS_RETRANSMITTED._value.get()
    # A record that has its row is not pushed again.
    assert looks.look() == 2
    assert RECORDS_RETRANSMITTED._value.get() == counted + 2
    assert client().xlen(outbox.STREAMS[0]) == 2
    assert settle_all() == 2
    assert nothing_happened(caller)
    assert looks.look() == 0


def test_what_is_evicted_again_is_pushed_again(caller: Caller, server: Server, looks: Retransmission) -> None:
    assert caller.chat("lost").status_code == 200
    for _ in range(3):
        server.evicts()
        assert looks.look() == 1
    assert settle_all() == 1
    server.evicts()
    assert looks.look() == 0
    assert nothing_happened(caller)


def test_what_a_store_has_lost_that_was_started_with_older_data_is_pushed_again(
    caller: Caller, server: Server, looks: Retransmission
) -> None:
    assert caller.chat("lost").status_code == 200
    server.evicts()
    server.state = ServerState("another run", 0)
    assert looks.look() == 1
    assert settle_all() == 1


def test_what_an_operator_deletes_with_all_data_is_pushed_again(caller: Caller) -> None:
    looks = Retransmission()
    assert looks.look() == 0
    assert caller.chat("lost").status_code == 200
    assert looks.look() == 0
    client().flushall()
    with capture_logs() as logs:
        assert looks.look() == 1
    assert [(one["event"], one["log_level"], one["records_pushed_again"]) for one in logs] == [
        ("store.emptied", "error", 1)
    ]
    outbox.prepare()
    assert settle_all() == 1
    assert looks.look() == 0
    assert nothing_happened(caller)


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (None, ServerState("one", 5), []),
        (ServerState("one", 1), ServerState("one", 3), [("error", "store.evicts", 2)]),
        (ServerState("one", 1), ServerState("two", 3), [("error", "store.evicts", 3)]),
        (ServerState("one", 1), ServerState("one", 1, "other data"), [("error", "store.emptied", None)]),
        (ServerState("one", 1), ServerState("two", 0), [("warning", "store.restarted", None)]),
    ],
)
def test_the_log_says_why_records_were_pushed_again(
    before: ServerState | None, now: ServerState, expected: list[tuple[str, str, int | None]]
) -> None:
    with capture_logs() as logs:
        retransmission._tell(before, now, 7)
    assert [(one["log_level"], one["event"], one.get("keys")) for one in logs] == expected
    assert all(one["records_pushed_again"] == 7 for one in logs)


def test_a_record_is_kept_while_it_waits_and_forgotten_once_it_is_settled(
    caller: Caller, looks: Retransmission, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = outbox.BUFFER
    assert caller.chat("waits").status_code == 200
    now = time.monotonic()
    # A minute later it is the oldest that waits.
    monkeypatch.setattr(retransmission, "time", type("Later", (), {"monotonic": lambda: now + 60}))
    monkeypatch.setattr(outbox, "depth", lambda: (1, 60.0))
    assert (looks.look(), len(buffer)) == (0, 1)
    assert settle_all() == 1
    monkeypatch.setattr(outbox, "depth", lambda: (0, 0.0))
    assert (looks.look(), len(buffer)) == (0, 0)


def test_without_the_database_everything_is_kept_for_the_next_look(
    caller: Caller, server: Server, looks: Retransmission, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(work: object) -> object:
        raise OperationalError("away")

    assert caller.chat("lost").status_code == 200
    server.evicts()
    with monkeypatch.context() as away:
        away.setattr(database, "read", refuse)
        with pytest.raises(OperationalError):
            looks.look()
    assert looks.look() == 1
    assert settle_all() == 1


def test_a_record_that_cannot_be_read_keeps_no_other_from_being_pushed(
    caller: Caller, server: Server, looks: Retransmission
) -> None:
    outbox.enqueue("worker-1", b'{"id": 1}')
    assert caller.chat("lost").status_code == 200
    server.evicts()
    assert looks.look() == 2
    assert settle_all() == 1


def test_what_is_kept_is_bounded_and_the_oldest_goes_first() -> None:
    buffer = RetransmissionBuffer(room=10)
    for record in (b"1234", b"5678", b"90", b"abcd"):
        buffer.add("worker-1", record)
    taken = buffer.take()
    assert [one.record for one in taken] == [b"5678", b"90", b"abcd"]
    buffer.add("worker-1", b"efgh")
    buffer.put_back(taken)
    buffer.add("worker-1", b"i")
    assert [one.record for one in buffer.take()] == [b"abcd", b"efgh", b"i"]


def test_records_pushed_before_a_moment_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1.0]
    monkeypatch.setattr(outbox, "time", type("Clock", (), {"monotonic": lambda: now[0]}))
    buffer = RetransmissionBuffer(room=100)
    for moment, record in ((1.0, b"one"), (2.0, b"two"), (3.0, b"three"), (4.0, b"four")):
        now[0] = moment
        buffer.add("worker-1", record)
    taken = buffer.take()
    assert (len(buffer), [one.pushed_at for one in taken]) == (0, [1.0, 2.0, 3.0, 4.0])
    buffer.put_back(taken)
    now[0] = 5.0
    buffer.add("worker-2", b"five")
    buffer.drop_before(2.0)
    assert len(buffer) == 4
    buffer.drop_before(4.5)
    assert [(one.pushed_at, one.worker, one.record) for one in buffer.take()] == [(5.0, "worker-2", b"five")]
    buffer.add("worker-2", b"six")
    buffer.drop_before(5.0)
    assert len(buffer) == 1
    buffer.drop_before(5.1)
    assert (len(buffer), buffer.take()) == (0, deque())


def test_dropped_records_leave_as_much_room_as_they_took(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1.0]
    monkeypatch.setattr(outbox, "time", type("Clock", (), {"monotonic": lambda: now[0]}))
    for returned, left in ((b"123456", [b"123456", b"cc", b"dd"]), (b"1234567", [b"cc", b"dd"])):
        now[0] = 1.0
        buffer = RetransmissionBuffer(room=10)
        for record in (b"aaa", b"bbb", b"cc"):
            buffer.add("worker-1", record)
            now[0] += 1
        buffer.drop_before(2.5)
        buffer.put_back(deque([PushedRecord(1.0, "worker-1", returned)]))
        buffer.add("worker-1", b"dd")
        assert [one.record for one in buffer.take()] == left


def test_a_record_as_large_as_the_room_is_kept_and_a_larger_one_is_not() -> None:
    buffer = RetransmissionBuffer(room=4)
    buffer.add("worker-1", b"1")
    buffer.add("worker-1", b"12345")
    assert len(buffer) == 1
    buffer.add("worker-1", b"1234")
    assert [one.record for one in buffer.take()] == [b"1234"]


def test_exactly_what_has_room_is_kept() -> None:
    buffer = RetransmissionBuffer(room=10)
    buffer.put_back(deque([PushedRecord(1.0, "worker-1", b"1234")]))
    for _ in range(2):
        buffer.add("worker-1", b"567890")
        taken = buffer.take()
        assert [one.record for one in taken] == [b"1234", b"567890"]
        buffer.put_back(deque([taken[0]]))
    buffer.take()
    # One that has to be in one piece begins at the block's start; the next one follows it.
    for record in (b"123456", b"7890a", b"bcde"):
        buffer.add("worker-1", record)
    assert [one.record for one in buffer.take()] == [b"7890a", b"bcde"]


def test_records_that_went_leave_their_room() -> None:
    buffer = RetransmissionBuffer(room=10)
    for record in (b"aaaa", b"bbbb", b"cc", b"d"):
        buffer.add("worker-1", record)
    buffer.put_back(deque([PushedRecord(1.0, "worker-1", b"x")]))
    buffer.add("worker-1", b"e")
    assert [one.record for one in buffer.take()] == [b"x", b"bbbb", b"cc", b"d", b"e"]


@given(st.lists(st.one_of(st.binary(min_size=1, max_size=12), st.just(None)), max_size=40))
def test_the_newest_records_that_fit_are_kept_whole(steps: list[bytes | None]) -> None:
    buffer, room = RetransmissionBuffer(room=10), 10
    kept: list[bytes] = []
    for record in steps:
        if record is None:
            buffer.put_back(buffer.take())
            continue
        buffer.add("worker-1", record)
        kept += [record] if len(record) <= room else []
    # Never in more memory than the room.
    assert len(buffer._block) in (0, room)
    taken = [one.record for one in buffer.take()]
    # Whole, in order, none left out between two, within the room.
    assert taken == kept[len(kept) - len(taken) :]
    assert sum(map(len, taken)) <= room
    # The last one that fits at all is always there.
    assert taken[-1:] == kept[-1:]
    assert len(buffer) == 0

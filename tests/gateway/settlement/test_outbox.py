"""Records on their way: the stream, and the spool while Valkey is away."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from apps.billing import balances
from apps.billing.limit_holds import LimitHold, LimitHolds, MeasuredUse
from apps.billing.reservations import Hold, Note, SettledHold, flight_key
from apps.billing.worker_leases import notes_key
from apps.gateway.metrics import RECORDS_REPLAYED, RECORDS_SPOOLED
from apps.gateway.settlement import outbox
from apps.kernel.ids import new_id
from apps.kernel.valkey import redis as kernel_redis
from apps.kernel.valkey.redis import shard_of


@pytest.fixture(autouse=True)
def spool(settings: Any, tmp_path: Path) -> Path:
    """A spool folder of the test's own, and a stream with its group."""
    settings.GATEWAY_HOME = tmp_path
    outbox.prepare()
    return tmp_path / "spool"


@pytest.fixture
def valkey_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Valkey cannot be reached until the fixture is undone."""

    class Away:
        def __getattr__(self, name: str) -> object:
            raise RedisConnectionError("away")

    with monkeypatch.context() as patch:
        patch.setattr(outbox, "client", lambda: Away())
        patch.setattr(outbox, "_PUSH", Away())
        yield patch


def taken(reader: str = "reader-1") -> list[tuple[str, str]]:
    """Return what a reader is given."""
    return [(message.worker, message.record) for message in outbox.read_batch(reader, 10, 10)]


def test_records_are_given_in_order_and_again_until_they_are_finished() -> None:
    outbox.push("worker-1", b'{"n":1}')
    outbox.push("worker-2", b'{"n":2}')
    expected = [("worker-1", '{"n":1}'), ("worker-2", '{"n":2}')]
    first = outbox.read_batch("reader-1", 10, 10)
    assert [(message.worker, message.record) for message in first] == expected
    assert taken() == expected
    assert taken("reader-2") == []
    outbox.acknowledge(first[:1])
    assert taken() == expected[1:]
    outbox.acknowledge(first)
    assert taken() == []
    assert outbox.depth() == (0, 0.0)


def test_a_record_that_got_the_id_of_one_the_store_lost_is_kept() -> None:
    outbox.push("worker-1", b'{"n":1}')
    [lost] = outbox.read_batch("reader-1", 10, 10)
    kernel_redis.client().delete(outbox.STREAMS[0])
    outbox.prepare()
    kernel_redis.client().xadd(outbox.STREAMS[0], {"worker": "worker-2", "record": '{"n":2}'}, id=lost.id)
    outbox.acknowledge([lost])
    assert taken() == [("worker-2", '{"n":2}')]
    outbox.acknowledge([lost])
    assert taken() == [("worker-2", '{"n":2}')]


def test_what_a_vanished_reader_left_is_given_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    outbox.push("worker-1", b"{}")
    assert taken("reader-1") == [("worker-1", "{}")]
    monkeypatch.setattr(outbox, "ABANDONED_AFTER", 0)
    assert taken("reader-2") == [("worker-1", "{}")]


def test_readers_of_the_past_are_forgotten_unless_they_hold_something() -> None:
    outbox.push("worker-1", b"{}")
    assert taken("reader-1") == [("worker-1", "{}")]
    assert taken("reader-2") == []
    outbox.forget_readers()
    assert readers() == {"reader-1", "reader-2"}
    outbox.forget_readers(silent_for=0)
    assert readers() == {"reader-1"}


def readers() -> set[str]:
    """Return the consumers that the stream knows."""
    return {one["name"] for one in kernel_redis.client().xinfo_consumers(outbox.STREAMS[0], outbox.GROUP)}


def test_depth_tells_how_many_wait_and_since_when() -> None:
    outbox.push("worker-1", b"{}")
    outbox.push("worker-1", b"{}")
    depth, age = outbox.depth()
    assert depth == 2
    assert 0 <= age < 5


def test_while_valkey_is_away_records_are_spooled_and_later_replayed(
    valkey_away: pytest.MonkeyPatch, spool: Path
) -> None:
    outbox.push("worker-1", b'{"messages": [\n"a"]}')
    outbox.push("worker-2", b"{}")
    (path,) = spool.iterdir()
    assert path.match(f"{os.getpid()}-*.spool")
    assert outbox.replay_spool() == 0
    assert len(list(spool.iterdir())) == 1
    valkey_away.undo()
    assert outbox.replay_spool() == 2
    assert list(spool.iterdir()) == []
    assert taken() == [("worker-1", '{"messages": [\n"a"]}'), ("worker-2", "{}")]


def test_a_line_of_an_earlier_version_whose_writer_died_in_the_middle_is_left_out(spool: Path) -> None:
    spool.mkdir()
    (spool / "1.spool").write_bytes(b'worker-1\t{}\nworker-1\t{"id')
    assert outbox.replay_spool() == 1
    assert taken() == [("worker-1", "{}")]


def test_the_spool_of_a_dead_process_is_brought_in_by_any_other(spool: Path) -> None:
    spool.mkdir()
    (spool / "999999.spool").write_bytes(b"worker-9\t{}\n")
    (spool / "abc.replay").write_bytes(b"worker-8\t{}\n")
    assert outbox.replay_spool() == 2
    assert sorted(taken()) == [("worker-8", "{}"), ("worker-9", "{}")]
    assert kernel_redis.client().xlen(outbox.STREAMS[0]) == 2


def test_without_room_on_the_disk_nothing_is_half_written(
    valkey_away: pytest.MonkeyPatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox.push("worker-1", b'{"n":1}')
    write = os.pwrite
    with monkeypatch.context() as full:
        full.setattr(
            os, "pwrite", lambda descriptor, data, at: write(descriptor, data[:5], at) if len(data) > 25 else 0
        )
        with pytest.raises(OSError, match="No space left"):
            outbox.push("worker-1", b'{"n":2}')
    outbox.push("worker-1", b'{"n":3}')
    valkey_away.undo()
    assert outbox.replay_spool() == 2
    assert taken() == [("worker-1", '{"n":1}'), ("worker-1", '{"n":3}')]


class Deaf:
    """A script that is sent off to a store that may lose it."""

    def __init__(self, script: Any) -> None:
        self._script = script
        self.failed: list[Callable[[RedisError], object]] = []

    def send_nowait(self, _keys: Any, _args: Any, failed: Callable[[RedisError], object]) -> None:
        self.failed.append(failed)

    def run_batched(self, keys: Any, args: Any) -> None:
        self._script.run_batched(keys, args)


def test_what_was_handed_over_and_got_lost_is_pushed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    deaf = Deaf(outbox._PUSH)
    monkeypatch.setattr(outbox, "_PUSH", deaf)
    outbox.enqueue("worker-1", b'{"n":1}')
    assert taken() == []
    deaf.failed[0](RedisConnectionError("lost"))
    outbox.flush_pending(5)
    assert taken() == [("worker-1", '{"n":1}')]


def test_what_cannot_be_handed_over_is_spooled(valkey_away: pytest.MonkeyPatch, spool: Path) -> None:
    outbox.enqueue("worker-1", b'{"n":1}')
    assert len(list(spool.iterdir())) == 1
    valkey_away.undo()
    assert outbox.replay_spool() == 1
    assert taken() == [("worker-1", '{"n":1}')]


def test_where_the_disk_is_waited_for_so_is_the_store(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.RECORD_BEFORE_ANSWER = True
    deaf = Deaf(outbox._PUSH)
    monkeypatch.setattr(outbox, "_PUSH", deaf)
    outbox.enqueue("worker-1", b'{"n":1}')
    assert deaf.failed == []
    assert taken() == [("worker-1", '{"n":1}')]


@pytest.fixture
def kept() -> Iterator[outbox.RetransmissionBuffer]:
    """The buffer of this process, without records of other tests."""
    outbox.BUFFER.take()
    yield outbox.BUFFER
    outbox.BUFFER.take()


@pytest.mark.parametrize("waits", [False, True])
def test_a_record_is_kept_until_it_is_settled_wherever_it_went(
    waits: bool, settings: Any, kept: outbox.RetransmissionBuffer, valkey_away: pytest.MonkeyPatch
) -> None:
    settings.RECORD_BEFORE_ANSWER = waits
    spooled, replayed = RECORDS_SPOOLED._value.get(), RECORDS_REPLAYED._value.get()
    outbox.enqueue("worker-1", b"1")
    assert (len(kept), RECORDS_SPOOLED._value.get() - spooled) == (1, 1)
    valkey_away.undo()
    outbox.enqueue("worker-1", b"2")
    outbox.flush_pending(5)
    assert len(kept) == 2
    kept.take()
    # From the spool it comes into the store, which may lose it.
    assert (outbox.replay_spool(), RECORDS_REPLAYED._value.get() - replayed) == (1, 1)
    assert [(one.worker, one.record) for one in kept.take()] == [("worker-1", b"1")]
    assert (outbox.replay_spool(), RECORDS_REPLAYED._value.get() - replayed) == (0, 1)
    assert sorted(taken()) == [("worker-1", "1"), ("worker-1", "2")]


def test_a_reader_may_ask_for_new_records_alone() -> None:
    outbox.push("worker-1", b"1")
    assert taken() == [("worker-1", "1")]
    assert outbox.read_batch("reader-1", 10, 0, left=False) == []
    for number in (b"2", b"3", b"4"):
        outbox.push("worker-1", number)
    assert [one.record for one in outbox.read_batch("reader-1", 2, 0, left=False)] == ["2", "3"]
    assert [one.record for one in outbox.read_batch("reader-1", 1, 0)] == ["1"]


def test_a_record_that_is_gone_is_no_message() -> None:
    outbox.push("worker-1", b"1")
    [message] = outbox.read_batch("reader-1", 10, 0)
    kernel_redis.client().xdel(outbox.STREAMS[0], message.id)
    assert taken() == []


@pytest.mark.parametrize(("ago", "age"), [(90.0, 90.0), (-90.0, 0.0)])
def test_the_age_is_that_of_the_oldest(ago: float, age: float) -> None:
    now = time.time()
    for moment in (now - ago, max(now, now - ago) + 1):
        identifier = f"{int(moment * 1000)}-0"
        kernel_redis.client().xadd(outbox.STREAMS[0], {"worker": "w", "record": "{}"}, id=identifier)
    assert outbox.depth() == (2, pytest.approx(age, abs=5))


def test_streams_are_made_once_and_what_is_no_stream_is_told() -> None:
    outbox.prepare()
    outbox.prepare()
    kernel_redis.client().delete(outbox.STREAMS[0])
    kernel_redis.client().set(outbox.STREAMS[0], "text")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        outbox.prepare()


def test_readers_that_ask_for_nothing_for_a_day_are_forgotten() -> None:
    assert outbox.FORGOTTEN_AFTER == 24 * 3_600 * 1_000
    assert taken("reader-1") == []
    idle = int(kernel_redis.client().xinfo_consumers(outbox.STREAMS[0], outbox.GROUP)[0]["idle"])
    outbox.forget_readers(silent_for=idle + 3_600_000)
    assert readers() == {"reader-1"}
    outbox.forget_readers(silent_for=idle)
    assert readers() == set()


def test_with_its_record_a_request_gives_back_what_it_does_not_need() -> None:
    organization, store = new_id(), kernel_redis.client()
    credits, flight = balances.key("organization", organization), flight_key(organization)
    counters = [balances.key("limit", new_id(), organization) for _ in range(6)]
    limits = LimitHolds.prepare([LimitHold(counters[0], 99, "requests")])
    hold = Hold("request-1", "worker-1", 5, (credits,), flight, shard=shard_of(organization), limits=limits)
    notes = notes_key("worker-1", hold.shard)
    # A prompt of 3 tokens, and 6 granted to the answer; the last two limits count another model.
    counted = [(1, 0), (3, 1), (3, 0), (0, 1), (3, 1), (1, 0)]
    counts = [[name, base, each] for name, (base, each) in zip(counters, counted, strict=True)]
    before = {"amount": "7", "written": "6", "counts": counts, "holds": [credits], "payload": "{}", "flight": flight}
    store.hset(notes, "request-1", msgspec.json.encode(before))
    for name in (credits, *counters):
        store.hset(name, "held", 10)
    store.zadd(flight, {"request-1": 1, "request-2": 1})
    note = msgspec.json.encode({"holds": [credits], "payload": "", "flight": ""})
    settled = SettledHold(hold, 2, note, MeasuredUse("rtio--", (), 4, 8))
    for _ in range(2):
        outbox.push("worker-1", b"{}", settled)
        # By the note's amount, which the last extension raised to 7; and once, though the record is pushed again.
        assert [store.hget(name, "held") for name in (credits, *counters)] == ["5", "10", "13", "11", "12", "1", "9"]
        after = msgspec.json.decode(store.hget(notes, "request-1") or "", type=Note)
        stays = dict(zip(counters, (1, 12, 4, 8, 0, 0), strict=True))
        assert (dict(after.held()), after.payload) == ({credits: 2, **stays}, "")
        assert store.zrange(flight, 0, -1) == ["request-2"]


def test_depths_of_shards_are_added_and_the_age_is_the_greatest(monkeypatch: pytest.MonkeyPatch) -> None:
    depths = [(2, 5.0), (1, 9.0), (0, 0.0)]
    monkeypatch.setattr(outbox, "ask_each", lambda ask: depths if ask is outbox.depth_of else [])
    assert outbox.depth() == (3, 9.0)


def test_a_record_of_the_future_has_no_age() -> None:
    identifier = f"{int((time.time() + 90) * 1000)}-0"
    kernel_redis.client().xadd(outbox.STREAMS[0], {"worker": "w", "record": "{}"}, id=identifier)
    assert outbox.depth_of(0) == (1, 0.0)


def test_readers_are_forgotten_from_the_stated_silence_on(monkeypatch: pytest.MonkeyPatch) -> None:
    consumers = [
        *({"name": f"silent for {idle}", "pending": 0, "idle": idle} for idle in (4, 5, 6)),
        {"name": "holds one", "pending": 1, "idle": 6},
    ]
    forgotten: list[tuple[str, str, str]] = []
    store = SimpleNamespace(
        xgroup_create=lambda *_, **__: None,
        xinfo_consumers=lambda stream, group: consumers,
        xgroup_delconsumer=lambda *names: forgotten.append(names),
    )
    monkeypatch.setattr(outbox, "client", lambda: store)
    outbox.forget_readers(silent_for=5)
    assert forgotten == [(outbox.STREAMS[0], "settle", f"silent for {idle}") for idle in (5, 6)]


def test_readers_are_looked_for_where_there_is_no_stream_yet() -> None:
    kernel_redis.client().delete(outbox.STREAMS[0])
    outbox.forget_readers()
    assert readers() == set()


def test_what_another_left_comes_before_ones_own_and_new_records(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, stuck = list[Any](), list[outbox.StreamEntry]()
    monkeypatch.setattr(outbox, "claim_pending", lambda *ask: asked.append(ask) or stuck)
    outbox.push("worker-1", b"1")
    assert taken() == [("worker-1", "1")]
    outbox.push("worker-1", b"2")
    # Pending for 10 seconds, by our own clock.
    assert asked == [(outbox.STREAMS[0], "settle", "reader-1", 10.0)]
    stuck.append(("5-0", {"worker": "worker-9", "record": "stuck"}))
    assert taken() == [("worker-9", "stuck")]
    stuck.clear()
    assert taken() == [("worker-1", "1")]
    # The clock of the store comes first: then ours is not asked.
    asked.clear()
    monkeypatch.setattr(outbox, "ABANDONED_AFTER", 0)
    assert (taken("reader-2"), asked) == ([("worker-1", "1")], [])


def test_where_nothing_waits_a_read_waits_as_long_as_it_was_told_to() -> None:
    began = time.monotonic()
    assert outbox.read_batch("reader-1", 10, 200) == []
    assert 0.15 < time.monotonic() - began < 5


def test_a_process_that_ends_waits_for_what_it_has_sent_and_logs_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    monkeypatch.setattr(outbox, "flush", lambda: steps.append("flush"))
    monkeypatch.setattr(outbox, "_RETRIES", SimpleNamespace(join=lambda: steps.append("retries")))
    monkeypatch.setattr(
        outbox,
        "BACKLOG",
        SimpleNamespace(drain=lambda: steps.append("backlog"), dump_to_log=lambda: steps.append("log")),
    )
    outbox.flush_pending(5)
    assert steps == ["flush", "retries", "backlog", "log"]
    steps.clear()

    def away() -> None:
        raise RedisConnectionError("away")

    # A store that is away keeps nothing from being spooled or logged.
    monkeypatch.setattr(outbox, "flush", away)
    outbox.flush_pending(5)
    assert steps == ["retries", "backlog", "log"]


def calls_of(*commands: str) -> int:
    """Return how often the store has run commands."""
    stats: Any = kernel_redis.client().info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in commands)


@pytest.mark.single_server
def test_a_single_server_is_asked_without_scripts_and_transactions() -> None:
    before = [calls_of("eval", "evalsha"), calls_of("exec")]
    outbox._read(outbox.STREAMS[0], "reader-1", ">", 10)
    assert outbox._lengths() == ({0: 0}, None)
    assert [calls_of("eval", "evalsha"), calls_of("exec")] == before


def test_the_buffer_is_full_when_its_room_is() -> None:
    def left(*records: bytes) -> list[bytes]:
        buffer = outbox.RetransmissionBuffer(room=10)
        for record in records:
            buffer.add("worker-1", record)
        assert len(buffer._block) == 10
        return [one.record for one in buffer.take()]

    # In one piece, within the room.
    assert left(b"aaaaaa", b"bbbbbb") == [b"bbbbbb"]
    assert left(b"aaaaaa", b"bbbb") == [b"aaaaaa", b"bbbb"]
    assert left(b"aaaa", b"bbbbbb", b"cccc") == [b"bbbbbb", b"cccc"]
    assert left(b"aaaa", b"bbbbbb", b"cccc", b"dddddd") == [b"cccc", b"dddddd"]
    assert left(b"aaaa", b"bbbbb", b"cc", b"d") == [b"bbbbb", b"cc", b"d"]

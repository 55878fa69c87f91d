"""The settler's reader: shards in turn, unfinished records now and then, and stores that do not answer."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from apps.gateway.settlement import outbox
from apps.gateway.settlement.outbox import OutboxMessage, OutboxReader, claim_pending
from apps.kernel.ids import new_id
from apps.kernel.valkey.redis import client
from tests.gateway.settlement.test_outbox import calls_of

AWAY = RedisConnectionError("away")


class Streams:
    """Three shards with numbered records, their clock, and the questions they got."""

    def __init__(self) -> None:
        self.now, self.waiting, self.away = 100.0, {0: 0, 1: 0, 2: 0}, set[int]()
        self.asked: list[tuple[int, int, int, bool]] = []
        self.prepared: list[int] = []
        self.slept: list[float] = []
        self.failure: RedisConnectionError | None = None

    def read(self, reader: str, count: int, wait_ms: int, *, left: bool, shard: int) -> list[OutboxMessage]:
        assert reader == "settler"
        self.asked.append((shard, count, wait_ms, left))
        if shard in self.away:
            raise AWAY
        given = min(count, self.waiting[shard])
        self.waiting[shard] -= given
        return [OutboxMessage(f"{number}-0", "worker-1", "{}", shard) for number in range(given)]

    def monotonic(self) -> float:
        """Return the present moment."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Note a pause."""
        self.slept.append(seconds)


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    streams = Streams()
    monkeypatch.setattr(outbox, "SHARD_COUNT", 3)
    monkeypatch.setattr(outbox, "_lengths", lambda: (dict(streams.waiting), streams.failure))
    monkeypatch.setattr(outbox, "read_batch", streams.read)
    monkeypatch.setattr(outbox, "prepare_shard", streams.prepared.append)
    monkeypatch.setattr(outbox, "time", streams)
    return streams


def shards_of(messages: list[OutboxMessage]) -> list[int]:
    return [one.shard for one in messages]


def test_one_shard_is_waited_for_and_searched_every_second(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "SHARD_COUNT", 1)
    reader = OutboxReader("settler")
    streams.waiting[0] = 4
    assert len(reader.read(2, 500)) == 2
    # There may be more that is unfinished, until fewer come than were asked for.
    assert len(reader.read(2, 500)) == 2
    assert reader.read(2, 500) == []
    assert streams.asked == [(0, 2, 500, True)] * 3
    streams.now += 0.9
    reader.read(2, 500)
    streams.now += 0.2
    reader.read(2, 500)
    reader.search_again()
    reader.read(2, 500)
    assert [left for *_, left in streams.asked[3:]] == [False, True, True]
    assert (streams.prepared, streams.slept) == ([0] * 5, [])


def test_just_after_the_machine_has_started_it_searches_too(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "SHARD_COUNT", 1)
    streams.now = 0.0
    reader = OutboxReader("settler")
    for seconds in (0.0, 0.5, 0.5):
        streams.now += seconds
        reader.read(2, 500)
    assert [left for *_, left in streams.asked] == [True, False, True]
    assert streams.prepared == [0, 0]


def test_a_shard_that_failed_is_searched_at_once(streams: Streams) -> None:
    streams.now = 0.0
    reader = OutboxReader("settler")
    streams.waiting[1] = 1
    for away in (set[int](), {1}, set[int]()):
        streams.waiting[1], streams.away = 1, away
        with suppress(RedisConnectionError):
            reader.read(4, 500)
    assert [(shard, left) for shard, _, _, left in streams.asked] == [(1, True), (1, False), (1, True)]


def test_the_first_failure_is_told(streams: Streams) -> None:
    reader = OutboxReader("settler")
    streams.failure, streams.waiting[1] = RedisConnectionError("first"), 1
    streams.away.add(1)
    with pytest.raises(RedisConnectionError, match="first"):
        reader.read(4, 500)


def test_a_busy_shard_holds_up_no_other(streams: Streams) -> None:
    reader = OutboxReader("settler")
    streams.waiting.update({0: 9, 2: 3})
    assert shards_of(reader.read(4, 500)) == [0] * 4
    # The next one's turn, and as many of the first as are left.
    assert shards_of(reader.read(4, 500)) == [2, 2, 2, 0]
    assert shards_of(reader.read(4, 500)) == [0] * 4
    assert [(shard, count, wait) for shard, count, wait, _ in streams.asked] == [
        *((0, 4, 0), (2, 4, 0), (0, 1, 0)),
        (0, 4, 0),
    ]
    streams.waiting.update({0: 4, 2: 4})
    # It was the first one's turn, so that the last one comes before it; then the first again.
    assert shards_of(reader.read(4, 500)) == [2] * 4
    assert shards_of(reader.read(4, 500)) == [0] * 4


def test_every_busy_shard_has_its_turn(streams: Streams) -> None:
    reader = OutboxReader("settler")
    streams.waiting.update({0: 9, 1: 9, 2: 9})
    assert [shards_of(reader.read(2, 500)) for _ in range(4)] == [[0, 0], [1, 1], [2, 2], [0, 0]]


def test_where_nothing_waits_it_pauses(streams: Streams) -> None:
    reader = OutboxReader("settler")
    assert (reader.read(4, 500), reader.read(4, 50)) == ([], [])
    assert (streams.slept, streams.asked) == ([0.1, 0.05], [])


def test_a_shard_that_does_not_answer_holds_up_no_other(streams: Streams) -> None:
    reader = OutboxReader("settler")
    streams.waiting.update({0: 1, 1: 1})
    reader.read(4, 500)
    streams.waiting.update({0: 1, 1: 1})
    streams.away.add(0)
    assert shards_of(reader.read(4, 500)) == [1]
    with pytest.raises(RedisConnectionError):
        reader.read(4, 500)
    streams.away.clear()
    assert shards_of(reader.read(4, 500)) == [0]
    # After a failure it is searched again at once.
    assert [(shard, left) for shard, _, _, left in streams.asked[2:]] == [(0, False), (1, False), (0, True), (0, True)]
    assert streams.slept == []
    # One that is away when it is measured: what the others have is read first.
    streams.failure = AWAY
    streams.waiting[1] = 1
    assert shards_of(reader.read(4, 500)) == [1]
    with pytest.raises(RedisConnectionError):
        reader.read(4, 500)


def test_messages_of_a_dead_reader_are_claimed_by_our_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, claimed = Streams(), list[Any]()
    pending = [
        {"message_id": "1-0", "consumer": "dead", "times_delivered": 1},
        {"message_id": "2-0", "consumer": "ours", "times_delivered": 1},
        {"message_id": "3-0", "consumer": "dead", "times_delivered": 1},
    ]
    store = SimpleNamespace(
        xpending_range=lambda *_: pending, xclaim=lambda *ask: claimed.append(ask) or [(one, {}) for one in ask[-1]]
    )
    monkeypatch.setattr(outbox, "client", lambda: store)
    monkeypatch.setattr(outbox, "time", clock)
    monkeypatch.setattr(outbox, "_seen_in", outbox.defaultdict(dict))

    def claim() -> list[str]:
        return [name for name, _ in claim_pending("stream", "settle", "ours", 10.0)]

    assert claim() == []
    clock.now += 9.5
    # Handed out again meanwhile: its time begins again.
    pending[2]["times_delivered"] = 2
    assert (claim(), claimed) == ([], [])
    clock.now += 0.5
    assert claim() == ["1-0"]
    assert claimed == [("stream", "settle", "ours", 0, ["1-0"])]
    # Settled, so that it is pending no more.
    del pending[0]
    clock.now += 9.0
    assert claim() == []
    clock.now += 0.5
    assert claim() == ["3-0"]


@pytest.fixture
def two_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of two shards, of which the first one's stream is here."""
    monkeypatch.setattr(outbox, "SHARD_COUNT", 2)
    monkeypatch.setattr(outbox, "shard_of", lambda organization: organization.int % 2)
    outbox.prepare_shard(0)


@pytest.mark.usefixtures("two_shards")
def test_a_stream_of_several_is_read_without_waiting() -> None:
    assert outbox.read_batch("reader", 10, 0) == []
    for number in range(3):
        client().xadd(outbox.STREAMS[0], {"worker": f"worker-{number}", "record": f"{number}"})
    first = outbox.read_batch("reader", 2, 0)
    assert [(one.worker, one.record) for one in first] == [("worker-0", "0"), ("worker-1", "1")]
    # Unfinished ones come again; one that is gone has no fields.
    client().xdel(outbox.STREAMS[0], first[0].id)
    assert [one.record for one in outbox.read_batch("reader", 10, 0)] == ["1"]
    assert [one.record for one in outbox.read_batch("reader", 10, 0, left=False)] == ["2"]


@pytest.mark.single_server
@pytest.mark.usefixtures("two_shards")
def test_a_stream_of_several_is_read_by_a_script() -> None:
    """The library would ask some node where the command has its keys, which may be the one away."""
    scripts = calls_of("eval", "evalsha")
    assert outbox.read_batch("reader", 2, 0) == []
    # For unfinished records, and for new ones.
    assert calls_of("eval", "evalsha") == scripts + 2


@pytest.mark.usefixtures("two_shards")
def test_a_record_goes_to_the_shard_of_its_organization() -> None:
    odd = next(one for one in iter(new_id, None) if one.int % 2)
    assert outbox.shard_of_record(f'{{"organization_id":"{odd}"}}') == 1
    assert [outbox.shard_of_record(text) for text in ("{", b"\xff", '{"id":1}')] == [0, 0, 0]


def test_streams_are_measured_each_by_itself_where_a_server_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    client().xadd(outbox.STREAMS[0], {"worker": "w", "record": "{}"})
    assert outbox._lengths() == ({0: 1}, None)

    class Away:
        def xlen(self, _: str) -> None:
            """Take the command."""

        def execute(self) -> None:
            raise AWAY

    monkeypatch.setattr(outbox, "client", lambda: SimpleNamespace(pipeline=lambda **_: Away()))
    monkeypatch.setattr(outbox, "ask_those_there", lambda _: ([(1, 7)], AWAY))
    assert outbox._lengths() == ({1: 7}, AWAY)

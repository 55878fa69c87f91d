"""Records on their way: the stream, and the spool while Valkey is away."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from apps.gateway.settlement import outbox
from apps.kernel.valkey import redis as kernel_redis


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

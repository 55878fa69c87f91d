"""A process's heartbeat: what it does with each beat, what stops it, and what it waits for at its end."""

from __future__ import annotations

import atexit
import os
from types import SimpleNamespace
from typing import Any

import gevent
import pytest
from django.db import OperationalError
from redis.exceptions import ConnectionError as RedisConnectionError

from apps.billing import worker_leases
from apps.billing.worker_leases import WORKERS, worker_name
from apps.gateway import metrics
from apps.gateway.admission import offline_admission
from apps.gateway.metrics import DEAD_LETTERS, HOME_FREE
from apps.gateway.settlement import dead_letters, disk_space, outbox, record_backlog, spool, worker_lease
from apps.gateway.settlement.outbox import OutboxMessage
from apps.gateway.settlement.retransmission import RETRANSMISSION
from apps.kernel.valkey import shards
from apps.kernel.valkey.redis import client
from apps.kernel.valkey.shards import OtherShards
from apps.logs import refusals
from tests.gateway.settlement.test_outbox import calls_of

AWAY = RedisConnectionError("away")


class Ended(BaseException):
    """The process ends here."""


@pytest.fixture
def did(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The steps of a heartbeat, which only note that they ran."""
    steps: list[Any] = []
    for place, name in (
        (record_backlog, "prepare"),
        (spool, "reserve"),
        (disk_space, "check_disk_space"),
        (shards, "require"),
        (outbox, "replay_spool"),
        (offline_admission, "on_heartbeat"),
        (RETRANSMISSION, "look"),
        (metrics, "flush_to_prometheus"),
        (refusals, "flush"),
    ):
        monkeypatch.setattr(place, name, lambda name=name: steps.append(name))
    for place, name in ((worker_leases, "send_heartbeat"), (worker_leases, "expire_lease"), (outbox, "flush_pending")):
        monkeypatch.setattr(place, name, lambda value, name=name: steps.append((name, value)))
    monkeypatch.setattr(worker_lease, "_started", False)
    return steps


def fail(error: BaseException) -> Any:
    """Return a step that fails."""

    def step(*_: Any) -> None:
        raise error

    return step


ROOM = ["prepare", "reserve", "check_disk_space"]


def test_a_process_starts_its_heartbeat_once(did: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    spawned, at_exit = list[Any](), list[Any]()
    monkeypatch.setattr(gevent, "spawn", spawned.append)
    monkeypatch.setattr(atexit, "register", at_exit.append)
    worker_lease.start()
    worker_lease.start()
    assert did == [*ROOM, "require", ("send_heartbeat", worker_name()), "look"]
    assert [one.__name__ for one in spawned] == ["_beat_forever", "sync_forever", "_flush_metrics"]
    assert at_exit == [worker_lease.retire]
    # A forked child has none of its parent's greenlets.
    worker_lease._begin_anew()
    worker_lease.start()
    assert len(spawned) == 6


def beats(monkeypatch: pytest.MonkeyPatch, count: int, loop: Any) -> list[float]:
    """Let a loop run for so many pauses; return how long each is."""
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        if len(pauses) == count:
            raise Ended
        pauses.append(seconds)

    monkeypatch.setattr(gevent, "sleep", sleep)
    with pytest.raises(Ended):
        loop()
    return pauses


def test_each_beat_brings_in_what_was_spooled(did: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert beats(monkeypatch, 2, worker_lease._beat_forever) == [3.0, 3.0]
    assert did == [*ROOM, "require", ("send_heartbeat", worker_name()), "replay_spool", "on_heartbeat", "look"] * 2


def test_without_the_store_a_beat_only_looks_after_the_disk(did: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_leases, "send_heartbeat", fail(AWAY))
    beats(monkeypatch, 1, worker_lease._beat_forever)
    assert did == [*ROOM, "require"]


def test_a_step_that_fails_keeps_no_other_from_its_turn(did: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "reserve", fail(OSError(28, "No space left on device")))
    monkeypatch.setattr(offline_admission, "on_heartbeat", fail(AWAY))
    beats(monkeypatch, 1, worker_lease._beat_forever)
    assert did == ["prepare", "check_disk_space", "require", ("send_heartbeat", worker_name()), "replay_spool", "look"]
    for error in (AWAY, OperationalError("away"), OSError(28, "No space left on device")):
        monkeypatch.setattr(RETRANSMISSION, "look", fail(error))
        did.clear()
        beats(monkeypatch, 2, worker_lease._beat_forever)
        assert did.count("replay_spool") == 2


def test_counts_are_flushed_every_second(did: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert beats(monkeypatch, 2, worker_lease._flush_metrics) == [1.0, 1.0]
    assert did == ["flush_to_prometheus", "flush"] * 2
    monkeypatch.setattr(refusals, "flush", fail(AWAY))
    beats(monkeypatch, 2, worker_lease._flush_metrics)
    assert did[4:] == ["flush_to_prometheus"] * 2


def test_a_process_of_other_shards_must_not_serve(did: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    statuses: list[int] = []

    def end(status: int) -> None:
        statuses.append(status)
        raise Ended

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(shards, "require", fail(OtherShards("2 shards, and 1 here")))
    with pytest.raises(Ended):
        worker_lease._beat()
    assert (statuses, did) == ([4], [])


@pytest.mark.parametrize(("waiting", "seconds"), [([], 5.0), (["a record"], 20.0)])
def test_a_process_that_ends_gives_up_its_lease_behind_its_records(
    did: list[Any], monkeypatch: pytest.MonkeyPatch, waiting: list[str], seconds: float
) -> None:
    monkeypatch.setattr(worker_lease, "BACKLOG", SimpleNamespace(waiting=waiting))
    worker_lease.retire()
    flushed = ["flush_to_prometheus", "flush", ("flush_pending", seconds), "look"]
    assert did == [*flushed, ("expire_lease", worker_name())]
    monkeypatch.setattr(worker_leases, "expire_lease", fail(AWAY))
    did.clear()
    worker_lease.retire()
    assert did == flushed


def test_a_beat_is_the_lease_in_the_store() -> None:
    assert worker_lease._beat() is True
    assert client().zscore(WORKERS[0], worker_name()) == pytest.approx(worker_leases.store_time(), abs=60)


class TestDiskSpace:
    """The free space under the home and the embedded stores' data."""

    @pytest.fixture(autouse=True)
    def disks(self, monkeypatch: pytest.MonkeyPatch, settings: Any) -> dict[str, int]:
        """Free blocks of 10 bytes by folder; a store that is not here has none."""
        settings.GATEWAY_HOME, settings.DISK_FREE_ALARM = "/home-of-ours", 100
        free = {"/home-of-ours": 10, "/home-of-ours/postgres": 20}

        def statvfs(folder: Any) -> Any:
            if str(folder) not in free:
                raise FileNotFoundError
            return SimpleNamespace(f_bavail=free[str(folder)], f_frsize=10, f_bfree=999)

        monkeypatch.setattr(disk_space.os, "statvfs", statvfs)
        monkeypatch.setattr(disk_space, "_alarmed", False)
        return free

    def test_is_read_for_the_folders_that_exist(self, disks: dict[str, int]) -> None:
        assert (disk_space.read_free(), disk_space.is_low()) == ({"home": 100, "postgres": 200}, False)
        disks["/home-of-ours/postgres"] = 9
        assert disk_space.is_low() is True

    def test_is_told_once_when_it_gets_low_and_once_when_it_is_enough_again(
        self, disks: dict[str, int], caplog: pytest.LogCaptureFixture
    ) -> None:
        for blocks in (10, 9, 8, 10, 10, 9):
            disks["/home-of-ours"] = blocks
            disk_space.check_disk_space()
            assert HOME_FREE.labels("home")._value.get() == blocks * 10
        told = [one.msg for one in caplog.records if isinstance(one.msg, dict)]
        assert [(one["event"], one["free"]) for one in told] == [
            ("disk.low", 90),
            ("disk.well_again", 100),
            ("disk.low", 90),
        ]
        assert told[0]["folders"] == ["home"]


def test_dead_letters_go_back_to_the_outbox_as_they_were() -> None:
    outbox.prepare()
    before = DEAD_LETTERS._value.get()
    for number in range(2):
        dead_letters.add(OutboxMessage(f"0-{number}", f"worker-{number}", "{broken"))
    assert (dead_letters.count(), client().xlen(outbox.STREAMS[0])) == (2, 0)
    assert DEAD_LETTERS._value.get() == before + 2
    assert dead_letters.replay() == 2
    assert (dead_letters.count(), dead_letters.replay()) == (0, 0)
    back = [(one.worker, one.record) for one in outbox.read_batch("reader", 10, 1)]
    assert back == [("worker-0", "{broken"), ("worker-1", "{broken")]


@pytest.mark.single_server
def test_each_dead_letter_moves_in_one_step() -> None:
    outbox.prepare()
    for number in range(2):
        dead_letters.add(OutboxMessage(f"0-{number}", "worker-1", "{broken"))
    transactions = calls_of("exec")
    assert dead_letters.replay() == 2
    assert calls_of("exec") == transactions + 2

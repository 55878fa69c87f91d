"""Records that neither store nor disk takes: kept, tried again, and no new request is let in meanwhile."""

from __future__ import annotations

import fcntl
import io
import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent
import pytest
from django.core.management import call_command
from django.test import Client
from redis.exceptions import ResponseError
from structlog.testing import capture_logs

from apps.gateway.metrics import RECORDS_IN_MEMORY, UNRECORDABLE
from apps.gateway.settlement import outbox, record_backlog, spool
from apps.gateway.settlement.record_backlog import BACKLOG, RecordBacklog, is_any_process_backlogged
from apps.kernel.errors import Overloaded
from tests.support.upstream import Caller, nothing_happened, settle_all


class Full:
    """A script that a store refuses which has no room."""

    def run_batched(self, *_: object) -> None:
        raise ResponseError("MISCONF Errors writing to the AOF file: No space left on device")

    send_nowait = run_batched


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    """Neither the store nor the disk takes a record until the fixture is undone."""

    def refuse(_worker: str, _record: bytes) -> None:
        raise OSError(28, "No space left on device")

    settings.GATEWAY_HOME = tmp_path
    outbox.prepare()
    with monkeypatch.context() as patch:
        patch.setattr(outbox, "_PUSH", Full())
        patch.setattr(spool, "add", refuse)
        yield patch
    BACKLOG.waiting.clear()
    BACKLOG.retry()
    # Its turn does not come before the whole run's end.
    if BACKLOG._greenlet is not None:
        BACKLOG._greenlet.kill()
        BACKLOG._greenlet = None


def taken() -> list[tuple[str, str]]:
    return [(message.worker, message.record) for message in outbox.read_batch("reader", 10, 10)]


def test_a_record_that_nobody_takes_is_kept_and_stored_once_when_somebody_does(full: pytest.MonkeyPatch) -> None:
    outbox.enqueue("worker-1", b'{"n":1}')
    outbox.enqueue("worker-1", b'{"n":2}')
    assert BACKLOG.retry() is False
    assert [one.record for one in BACKLOG.waiting] == [b'{"n":1}', b'{"n":2}']
    full.undo()
    assert BACKLOG.retry() is True
    assert taken() == [("worker-1", '{"n":1}'), ("worker-1", '{"n":2}')]
    assert BACKLOG.retry() is True
    assert outbox.client().xlen(outbox.STREAMS[0]) == 2


def test_a_record_goes_to_the_disk_where_only_that_has_room_again(
    full: pytest.MonkeyPatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox.enqueue("worker-1", b'{"n":1}')
    full.undo()
    with monkeypatch.context() as away:
        away.setattr(outbox, "_PUSH", Full())
        assert BACKLOG.retry() is True
        assert outbox.client().xlen(outbox.STREAMS[0]) == 0
    assert outbox.replay_spool() == 1
    assert taken() == [("worker-1", '{"n":1}')]


def test_a_request_that_is_refused_because_records_wait_is_counted(full: pytest.MonkeyPatch) -> None:
    before = UNRECORDABLE._value.get()
    BACKLOG.raise_if_backlogged()
    outbox.enqueue("worker-1", b"{}")
    with pytest.raises(Overloaded):
        BACKLOG.raise_if_backlogged()
    assert UNRECORDABLE._value.get() == before + 1


def test_what_the_store_refuses_later_does_not_go_down_with_its_greenlet(full: pytest.MonkeyPatch) -> None:
    """The answer is with the client; the refusal of its record comes after it."""
    outbox._push_again("worker-1", b"{}", None, ResponseError("MISCONF"))
    outbox._RETRIES.join()
    assert [one.record for one in BACKLOG.waiting] == [b"{}"]


@pytest.mark.parametrize(
    ("path", "told"),
    [
        (
            "/v1/chat/completions",
            {"type": "api_error", "param": None, "code": "overloaded"},
        ),
        ("/v1/messages", {"type": "overloaded_error"}),
    ],
)
def test_while_a_record_waits_nobody_is_let_in(
    caller: Caller, full: pytest.MonkeyPatch, path: str, told: dict[str, Any]
) -> None:
    outbox.enqueue("worker-1", b"{}")
    body = {
        "model": "sandbox/echo",
        "max_tokens": 10,
        "messages": [{"role": "user", "content": "hi [[sandbox tag=no]]"}],
    }
    response = caller.client.post(
        path, body, content_type="application/json", headers={"Authorization": f"Bearer {caller.token}"}
    )
    assert (response.status_code, response["Retry-After"]) == (503, "5")
    message = "The gateway cannot store records of requests right now; try again shortly"
    assert response.json()["error"] == {"message": message, **told}
    assert caller.sent("no") == []
    assert nothing_happened(caller)
    full.undo()
    assert BACKLOG.retry() is True
    assert caller.chat("hi").status_code == 200


def test_requests_under_way_when_the_disk_fills_are_all_recorded_once(
    caller: Caller, full: pytest.MonkeyPatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Let in before the gateway noticed.
    with monkeypatch.context() as before:
        before.setattr(BACKLOG, "raise_if_backlogged", lambda: None)
        assert [caller.chat(f"question {number}").status_code for number in range(3)] == [200] * 3
    assert len(BACKLOG.waiting) == 3
    full.undo()
    assert BACKLOG.retry() is True
    assert settle_all() == 3
    assert settle_all() == 0
    assert nothing_happened(caller)


def test_health_says_that_records_cannot_be_stored(db: None, full: pytest.MonkeyPatch) -> None:
    outbox.enqueue("worker-1", b"{}")
    response = Client().get("/")
    assert (response.status_code, response.json()["message"]) == (503, "Failed: records")
    assert response.json()["health"]["records"] == {
        "connected": False,
        "error": "Records cannot be stored: neither the store nor the disk takes them, and new requests are refused",
    }
    full.undo()
    BACKLOG.retry()
    assert Client().get("/").status_code == 200


def test_health_knows_of_records_that_wait_in_another_process(db: None, settings: Any, tmp_path: Path) -> None:
    settings.GATEWAY_HOME = tmp_path
    record_backlog.prepare()
    other = os.open(tmp_path / "run" / "records-waiting", os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX)
    assert Client().get("/").json()["message"] == "Failed: records"
    os.close(other)
    assert Client().get("/").status_code == 200


def test_health_checks_at_once_do_not_see_one_another(settings: Any, tmp_path: Path) -> None:
    settings.GATEWAY_HOME = tmp_path
    record_backlog.prepare()

    def look(_: int) -> int:
        return sum(is_any_process_backlogged() for _ in range(3_000))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(look, range(4))) == [0] * 4


def test_who_looks_sees_who_tells_beside_others_who_look(settings: Any, tmp_path: Path) -> None:
    settings.GATEWAY_HOME = tmp_path
    record_backlog.prepare()
    looking = os.open(tmp_path / "run" / "records-waiting", os.O_RDWR)
    fcntl.flock(looking, fcntl.LOCK_SH)
    assert is_any_process_backlogged() is False
    os.close(looking)
    telling = RecordBacklog()
    telling._tell()
    assert is_any_process_backlogged() is True
    second = RecordBacklog()
    second._tell()
    telling._withdraw()
    # The second tells with its next try.
    second._tell()
    assert is_any_process_backlogged() is True
    second._withdraw()
    assert is_any_process_backlogged() is False


def test_little_space_is_a_warning_and_no_failure(db: None, settings: Any) -> None:
    settings.DISK_FREE_ALARM = 1 << 60
    response = Client().get("/")
    assert (response.status_code, response.json()["message"]) == (200, "OK")
    assert response.json()["health"]["disk"] == {"connected": True, "warning": "Little space is left"}


def test_what_a_stopping_process_leaves_to_its_log_can_be_pushed_from_there(
    full: pytest.MonkeyPatch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    outbox.enqueue("worker-1", b'{"content":"nobody else may read this"}')
    outbox.flush_pending(0.1)
    assert not BACKLOG.waiting
    left = [record for record in caplog.records if "records.left_to_the_log" in str(record.msg)]
    assert len(left) == 1
    assert "nobody" not in str(left[0].msg)
    full.undo()
    sealed = left[0].msg["sealed"] if isinstance(left[0].msg, dict) else ""
    lines = f"something else\n2026 [error] records.left_to_the_log [apps] sealed={sealed}\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    call_command("push_records")
    assert taken() == [("", '{"content":"nobody else may read this"}')]


class Taker:
    """A store that refuses so many times, and then takes each record."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.taken: list[bytes] = []

    def push_of(self, record: bytes) -> Callable[[], None]:
        """Return what pushes a record."""

        def push() -> None:
            if self.refusals > 0:
                self.refusals -= 1
                raise ResponseError("MISCONF")
            self.taken.append(record)

        return push


@pytest.fixture
def backlog(settings: Any, tmp_path: Path) -> Iterator[RecordBacklog]:
    """A backlog of the test's own, in a home of its own."""
    settings.GATEWAY_HOME = tmp_path
    backlog = RecordBacklog()
    yield backlog
    backlog._withdraw()
    if backlog._greenlet is not None:
        backlog._greenlet.kill()


def in_memory() -> float:
    return float(RECORDS_IN_MEMORY._value.get())


def test_waiting_records_are_shown_and_told_once(backlog: RecordBacklog) -> None:
    store = Taker(1)
    with capture_logs() as logs:
        backlog.add(store.push_of(b"1"), b"1", "ResponseError")
        first = backlog._greenlet
        backlog.add(store.push_of(b"2"), b"2", "OSError")
    assert logs == [{"event": "records.waiting", "log_level": "error", "error": "ResponseError"}]
    assert (first is not None, backlog._greenlet is first) == (True, True)
    assert (in_memory(), is_any_process_backlogged()) == (2, True)
    assert backlog.retry() is False
    assert (in_memory(), is_any_process_backlogged(), store.taken) == (2, True, [])
    assert backlog.retry() is True
    assert (in_memory(), is_any_process_backlogged(), store.taken) == (0, False, [b"1", b"2"])


def test_who_could_not_tell_tells_with_its_next_try(backlog: RecordBacklog) -> None:
    another = RecordBacklog()
    another._tell()
    opened = len(os.listdir("/dev/fd"))
    backlog.add(Taker(1).push_of(b"1"), b"1", "ResponseError")
    assert len(os.listdir("/dev/fd")) == opened
    another._withdraw()
    assert is_any_process_backlogged() is False
    assert backlog.retry() is False
    assert is_any_process_backlogged() is True


def test_a_process_that_leaves_its_records_to_the_log_no_longer_tells(backlog: RecordBacklog) -> None:
    backlog.add(Taker(1).push_of(b"1"), b"1", "ResponseError")
    assert is_any_process_backlogged() is True
    backlog.dump_to_log()
    assert (len(backlog.waiting), is_any_process_backlogged()) == (0, False)


def test_the_pauses_between_tries_double_up_to_two_seconds(
    backlog: RecordBacklog, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses, store = list[float](), Taker(7)
    backlog.add(store.push_of(b"1"), b"1", "ResponseError")
    # For the backlog alone: other greenlets of this process go on to sleep.
    monkeypatch.setattr(record_backlog, "gevent", SimpleNamespace(spawn=gevent.spawn, sleep=pauses.append))
    backlog.drain()
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert (store.taken, len(backlog.waiting), backlog._greenlet) == ([b"1"], 0, None)
    # Nothing waits: nothing is waited for.
    backlog.drain()
    # The next one is tried again as the first was.
    store.refusals = 1
    backlog.add(store.push_of(b"2"), b"2", "ResponseError")
    backlog.drain()
    assert (store.taken, pauses[7:]) == ([b"1", b"2"], [0.1])


def test_a_look_leaves_no_file_open_and_only_our_user_opens_it(
    backlog: RecordBacklog, settings: Any, tmp_path: Path
) -> None:
    settings.GATEWAY_HOME = tmp_path / "not" / "there"
    record_backlog.prepare()
    opened = len(os.listdir("/dev/fd"))
    for _ in range(3):
        record_backlog.prepare()
        assert is_any_process_backlogged() is False
    backlog._tell()
    assert is_any_process_backlogged() is True
    backlog._tell()
    backlog._withdraw()
    assert len(os.listdir("/dev/fd")) == opened
    folder = settings.GATEWAY_HOME / "run"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "records-waiting")] == [0o700, 0o600]


def test_where_the_file_cannot_be_made_no_other_is_said_to_wait(settings: Any, tmp_path: Path) -> None:
    settings.GATEWAY_HOME = tmp_path / "file"
    settings.GATEWAY_HOME.write_bytes(b"")
    with pytest.raises(OSError, match="Not a directory"):
        record_backlog.prepare()
    assert is_any_process_backlogged() is False

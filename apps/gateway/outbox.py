"""Where finished requests wait to be settled: a Redis stream, and a spool on disk while Redis is away.

A record is in one of the two, or on its way to the stream and out of this process, before the last byte of its answer
leaves (docs/adr/0079). It may come to be in the stream twice; whoever settles writes each id once. Knows streams and
files. Must never know what a record says.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import gevent
import structlog
from django.conf import settings
from gevent.pool import Group
from redis.exceptions import RedisError, ResponseError

from apps.billing.holds import Shrunk
from apps.billing.leases import notes_key
from apps.gateway.metrics import RECORDS_SPOOLED
from apps.kernel.redis import LuaScript, client, heard
from apps.kernel.setting import Setting

log = structlog.get_logger(__name__)

STREAM, GROUP = "outbox", "settle"
_PUSH = LuaScript(
    """
    -- KEYS: the stream, and for a request that holds a reservation: its worker's notes, the requests in flight, and the
    --       balances it is held on
    -- ARGV: worker, record; the request's id, what stays of its note, and what each balance goes on holding
    redis.call('XADD', KEYS[1], '*', 'worker', ARGV[1], 'record', ARGV[2])
    if not KEYS[2] then return end
    redis.call('ZREM', KEYS[3], ARGV[3])
    local note = redis.call('HGET', KEYS[2], ARGV[3])
    -- Pushed again because the answer was lost on its way: it was given back already, or even released.
    if not note or note == ARGV[4] then return end
    -- By what the note says: the worker may not know of its last extension.
    local held = tonumber(string.match(note, '^{"amount":"(%d+)"'))
    for i = 4, #KEYS do
      redis.call('HINCRBY', KEYS[i], 'held', string.format('%.0f', tonumber(ARGV[i + 1]) - held))
    end
    redis.call('HSET', KEYS[2], ARGV[3], ARGV[4])
    """
)
# Who pushes what the store may not have got.
_AGAIN = Group()
_WAITED_FOR = Setting("RECORD_BEFORE_ANSWER")
# A message that its reader has not finished with for so long (milliseconds) is handed to another.
ABANDONED_AFTER = 10_000


@dataclass(frozen=True, slots=True)
class Message:
    """A record on its way: its place in the stream, the worker that held its reservation, the record as JSON."""

    id: str
    worker: str
    record: str


def hand_over(worker: str, record: bytes, shrunk: Shrunk | None = None) -> None:
    """Send a record on its way to where it survives the death of any one process.

    When this returns it has left this process: the store gets it though this one may die, and this one keeps it, to
    push it again, until the store has said that it has it. With `VALKEY_SYNC=always` that is waited for.
    """
    if _WAITED_FOR.value:
        push(worker, record, shrunk)
        return
    try:
        _PUSH.tell(*_words(worker, record, shrunk), partial(_push_again, worker, record, shrunk))
    except RedisError:
        push(worker, record, shrunk)


def _push_again(worker: str, record: bytes, shrunk: Shrunk | None, error: RedisError) -> None:
    log.info("outbox.pushed_again", error=type(error).__name__)
    _AGAIN.spawn(push, worker, record, shrunk)


def push(worker: str, record: bytes, shrunk: Shrunk | None = None) -> None:
    """Put a record where it survives the death of any one process, and be told so.

    In the same step its request is no longer in flight, and holds no more than it cost (`shrunk`).
    """
    try:
        _PUSH.together(*_words(worker, record, shrunk))
    except RedisError as error:
        log.warning("outbox.spooled", error=type(error).__name__)
        RECORDS_SPOOLED.inc()
        _spool(worker, record)


def _words(worker: str, record: bytes, shrunk: Shrunk | None) -> tuple[list[str], list[str | int | bytes]]:
    """Return keys and arguments of what is pushed."""
    keys: list[str] = [STREAM]
    args: list[str | int | bytes] = [worker, record]
    if shrunk is not None:
        hold = shrunk.hold
        keys += (notes_key(hold.worker), hold.flight, *hold.balances)
        args += (hold.id, shrunk.note, *shrunk.stays)
    return keys, args


def arrive(seconds: float) -> None:
    """Wait, but not for longer, until all that was handed over is in the stream or the spool."""
    with suppress(gevent.Timeout), gevent.Timeout(seconds):
        with suppress(RedisError):
            heard()
        _AGAIN.join()


def _stream() -> Any:
    """Return the client; the library's types of stream answers cover every protocol version and fit none."""
    return client()


def _add(worker: str, record: bytes) -> None:
    client().xadd(STREAM, {"worker": worker, "record": record})


# --- the settling side


def prepare() -> None:
    """Make the stream and its group. Raises RedisError."""
    try:
        client().xgroup_create(STREAM, GROUP, id="0", mkstream=True)
    except ResponseError as error:
        if "BUSYGROUP" not in str(error):
            raise


def take(reader: str, count: int, wait_ms: int, *, left: bool = True) -> list[Message]:
    """Return messages to settle: first those that this or a vanished reader `left` unfinished, then new ones.

    Raises RedisError.
    """
    found: list[tuple[str, dict[str, str]]] = []
    if left:
        found = _stream().xautoclaim(STREAM, GROUP, reader, ABANDONED_AFTER, "0-0", count=count)[1]
        found = found or _read(reader, "0", count)
    found = found or _read(reader, ">", count, block=wait_ms)
    return [Message(identifier, fields["worker"], fields["record"]) for identifier, fields in found if fields]


def _read(reader: str, since: str, count: int, block: int | None = None) -> list[tuple[str, dict[str, str]]]:
    """Return entries of the stream: the reader's own unfinished ones (`0`), or new ones (`>`)."""
    answer = _stream().xreadgroup(GROUP, reader, {STREAM: since}, count=count, block=block)
    return answer[0][1] if answer else []


def finish(messages: Sequence[Message]) -> None:
    """Take settled messages out of the stream. Raises RedisError."""
    if messages:
        identifiers = [message.id for message in messages]
        pipe = client().pipeline(transaction=True)
        pipe.xack(STREAM, GROUP, *identifiers)
        pipe.xdel(STREAM, *identifiers)
        pipe.execute()


def depth() -> tuple[int, float]:
    """Return how many records wait and the age of the oldest in seconds. Raises RedisError."""
    stream = _stream()
    first = stream.xrange(STREAM, count=1)
    if not first:
        return 0, 0.0
    oldest = int(first[0][0].split("-")[0]) / 1000
    return int(stream.xlen(STREAM)), max(float(stream.time()[0]) - oldest, 0.0)


# --- the spool


def _spool_folder() -> Path:
    folder = Path(settings.GATEWAY_HOME) / "spool"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


@cache
def _spool_name(pid: int) -> str:
    """Return the name of a process's file: never that of an earlier one, which may end in half a line."""
    return f"{pid}-{uuid4().hex}.spool"


def _spool(worker: str, record: bytes) -> None:
    """Append a record to this process's spool file, on disk before it returns: one line, the worker and the JSON.

    Nothing here switches to another greenlet, so the file is never half written or renamed in between. Raises OSError.
    """
    line = worker.encode() + b"\t" + record.replace(b"\n", b" ") + b"\n"
    path = _spool_folder() / _spool_name(os.getpid())
    while True:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Another process may have taken the file away before it was locked: what is added now is never read.
            if _is_at(path, descriptor):
                _append(descriptor, line)
                return
        finally:
            os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    """Is the open file still the one of that name?"""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


def _append(descriptor: int, line: bytes) -> None:
    """Write a line to its end and to the disk. Raises OSError when there is no room; then nothing of it stays."""
    length = os.fstat(descriptor).st_size
    if os.write(descriptor, line) < len(line):
        os.ftruncate(descriptor, length)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.fsync(descriptor)


def replay() -> int:
    """Move spooled records, whoever spooled them, into the stream; return how many. Stops where Redis fails again."""
    folder = _spool_folder()
    for path in folder.glob("*.spool"):
        # From here on nobody appends to it: a writer that has it open finishes first.
        with suppress(FileNotFoundError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            path.rename(folder / f"{uuid4().hex}.replay")
    moved = 0
    for path in folder.glob("*.replay"):
        try:
            moved += _replay_file(path)
        except RedisError as error:
            log.warning("outbox.replay_stopped", error=type(error).__name__)
            break
    if moved:
        log.info("outbox.replayed", records=moved)
    return moved


def _replay_file(path: Path) -> int:
    """Move one file's records; 0 when another process is at it."""
    moved = 0
    with suppress(FileNotFoundError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0
        for line in file:
            # A line without its end was never acknowledged: its writer died in the middle.
            if line.endswith(b"\n"):
                worker, _, record = line[:-1].partition(b"\t")
                _add(worker.decode(), record)
                moved += 1
        path.unlink()
    return moved

"""Disk spool: files where records wait while the store refuses them, in space that is allocated before it is needed.

Each process has one file, locked for as long as the process lives, whose blocks are allocated when it starts: on a full
disk there is still that much room. Empty it lies in `spool-reserve/`, with records in `spool/`. A file that is not
locked is a dead process's, and any other may empty it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from uuid import uuid4
from zlib import crc32

import structlog
from django.conf import settings

log = structlog.get_logger(__name__)

# A frame: its mark, the round it belongs to, length and checksum of what follows: the worker, a tab and the record. An
# emptied file is written again from its beginning; the remains of earlier rounds have their number.
_HEAD = struct.Struct("<4s8sII")
_MARK = b"\xf7GR1"
_NOTHING = bytes(_HEAD.size)
# The first byte distinguishes a frame from text, the form of spooled records before there were frames.
_FRAMED = (_MARK[:1], b"\0")
# Bytes that are read of a file at a time.
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class SpooledRecord:
    """A record, and the worker that held its reservation."""

    worker: str
    record: bytes


class SpoolFile:
    """This process's own file: records are added at its end and taken from its beginning."""

    def __init__(self, home: Path) -> None:
        """Make it, without any room yet. Raises OSError."""
        folder, reserve_folder = _folders_of(home)
        name = f"{os.getpid()}-{uuid4().hex}"
        self._full, self._empty = folder / f"{name}.spool", reserve_folder / f"{name}.reserve"
        self._path = self._empty
        self._descriptor = _create(self._empty)
        self._room = 0
        self._moving = False
        self._begin_round()

    def _begin_round(self) -> None:
        self._round, self._written, self._taken = os.urandom(8), 0, 0

    @property
    def waiting(self) -> bool:
        """Whether any records wait in it."""
        return self._taken < self._written

    @property
    def usable(self) -> bool:
        """Whether it is still where others look for it."""
        return _is_at(self._path, self._descriptor)

    def reserve(self, room: int) -> None:
        """Take so many bytes of the disk, unless it has them. Raises OSError."""
        if room > self._room and not self._written:
            try:
                _allocate(self._descriptor, room)
            except OSError:
                os.ftruncate(self._descriptor, self._room)
                raise
            self._room = room

    def add(self, worker: str, record: bytes) -> None:
        """Append a record, on disk before this returns. Raises OSError when there is no room; then it is not in.

        Nothing here switches to another greenlet.
        """
        payload = worker.encode() + b"\t" + record
        frame = _HEAD.pack(_MARK, self._round, len(payload), crc32(payload)) + payload
        try:
            # First the place where it is found, then the record.
            self._rename(self._full)
            _write(self._descriptor, frame, self._written)
            os.fsync(self._descriptor)
        except OSError:
            with suppress(OSError):
                # Half a frame is no record, and a whole one is pushed twice, which settlement ignores.
                os.ftruncate(self._descriptor, max(self._room, self._written))
                if not self._written:
                    self._rename(self._empty)
            raise
        self._written += len(frame)

    def move(self, push: Callable[[str, bytes], None]) -> int:
        """Push the records that wait, oldest first, and have the room again; return how many. Raises as `push` does.

        Records may be added meanwhile. Should the process die on the way, some are pushed again by another.
        """
        if self._moving:
            return 0
        self._moving, moved = True, 0
        try:
            while self.waiting:
                found = next(_frames(self._descriptor, self._taken), None)
                if found is None:
                    self._put_aside()
                    return moved
                push(found[0].worker, found[0].record)
                self._taken = found[1]
                moved += 1
            if self._written:
                _write(self._descriptor, _NOTHING, 0)
                self._begin_round()
                os.ftruncate(self._descriptor, self._room)
                os.fsync(self._descriptor)
            self._rename(self._empty)
        finally:
            self._moving = False
        return moved

    def close(self) -> None:
        """Let go of it; what waits in it is any other process's to move."""
        if self._path == self._empty:
            self._empty.unlink(missing_ok=True)
        os.close(self._descriptor)

    def _rename(self, path: Path) -> None:
        if self._path != path:
            os.rename(self._path, path)
            self._path = path

    def _put_aside(self) -> None:
        """Keep for an operator what the disk has not kept as it was."""
        log.error("spool.unreadable", path=str(self._path), offset=self._taken, size=self._written)
        self._rename(self._full.with_suffix(".broken"))
        self._path = self._empty


@cache
def _own() -> dict[Path, SpoolFile]:
    return {}


def _forget_own() -> None:
    """Be another process: the file is the parent's."""
    _own.cache_clear()


os.register_at_fork(after_in_child=_forget_own)


def reserve() -> None:
    """Take this process's room on the disk (RECORD_SPOOL_SIZE), unless it has it. Raises OSError."""
    _own_file().reserve(settings.RECORD_SPOOL_SIZE)


def add(worker: str, record: bytes) -> None:
    """Spool a record. Raises OSError when there is no room for it."""
    _own_file().add(worker, record)


def _own_file() -> SpoolFile:
    home = Path(settings.GATEWAY_HOME)
    file = _own().get(home)
    if file is None or not file.usable:
        if file is not None:
            file.close()
        file = _own()[home] = SpoolFile(home)
    return file


def move(push: Callable[[str, bytes], None]) -> int:
    """Push the spooled records of all processes, and remove the files of dead ones; return the number of records.

    Raises what `push` raises.
    """
    home = Path(settings.GATEWAY_HOME)
    own = _own().get(home)
    moved = own.move(push) if own is not None and own.usable else 0
    folder, reserve_folder = _folders_of(home)
    for path in (*folder.glob("*.spool"), *folder.glob("*.replay")):
        moved += _move_abandoned(path, push)
    for path in reserve_folder.glob("*.reserve"):
        # Its process is dead: the room is the next process's.
        _move_abandoned(path, push)
    return moved


def _move_abandoned(path: Path, push: Callable[[str, bytes], None]) -> int:
    """Push the records of a file without a lock, and remove it; return how many."""
    moved = 0
    with suppress(FileNotFoundError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0
        # Another may have been at it before, and be done.
        if _is_at(path, file.fileno()):
            for one in _spooled_in(file.fileno()):
                push(one.worker, one.record)
                moved += 1
            path.unlink()
    return moved


def _spooled_in(descriptor: int) -> Iterator[SpooledRecord]:
    """Yield what a file holds, up to where it was not finished."""
    if os.pread(descriptor, 1, 0) in _FRAMED:
        for one, _ in _frames(descriptor, 0):
            yield one
        return
    with os.fdopen(os.dup(descriptor), "rb") as file:
        for line in file:
            # A line without its end was never acknowledged: its writer died in the middle.
            if line.endswith(b"\n"):
                worker, _, record = line[:-1].partition(b"\t")
                yield SpooledRecord(worker.decode(), record)


def _frames(descriptor: int, at: int) -> Iterator[tuple[SpooledRecord, int]]:
    """Yield the records from a place on, and where each ends. Ends at room, at half a frame, at an earlier round's."""
    first: bytes | None = None
    while True:
        head = os.pread(descriptor, _HEAD.size, at)
        if len(head) < _HEAD.size:
            return
        mark, current, length, checksum = _HEAD.unpack(head)
        first = first or current
        if mark != _MARK or current != first:
            return
        payload = _read(descriptor, length, at + _HEAD.size)
        if len(payload) < length or crc32(payload) != checksum:
            return
        at += _HEAD.size + length
        worker, _, record = payload.partition(b"\t")
        yield SpooledRecord(worker.decode(), record), at


def _read(descriptor: int, length: int, at: int) -> bytes:
    pieces: list[bytes] = []
    while length > 0 and (piece := os.pread(descriptor, min(length, _CHUNK), at)):
        pieces.append(piece)
        at += len(piece)
        length -= len(piece)
    return b"".join(pieces)


def _write(descriptor: int, data: bytes, at: int) -> None:
    """Write all of it. Raises OSError."""
    while data:
        written = os.pwrite(descriptor, data, at)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        data, at = data[written:], at + written


def _allocate(descriptor: int, size: int) -> None:
    """Have the disk keep so many bytes for a file. Raises OSError."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        _write(descriptor, bytes(size), 0)


def _folders_of(home: Path) -> tuple[Path, Path]:
    """Return where files with records are, and those without. Raises OSError."""
    folders = home / "spool", home / "spool-reserve"
    for folder in folders:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folders


def _create(path: Path) -> int:
    """Return a new file, open and locked. Raises OSError."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Another process may have taken it for a dead one's before it was locked.
        if _is_at(path, descriptor):
            return descriptor
        os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    """Is the open file still the one of that name?"""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False

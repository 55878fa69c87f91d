"""The spool: room that is taken beforehand, frames that tell whether they are whole, files of the dead."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from apps.gateway.settlement import spool
from apps.gateway.settlement.spool import SpoolFile

ROOM = 64 * 1024


@pytest.fixture
def home(tmp_path: Path, settings: Any) -> Iterator[Path]:
    """A home of the test's own."""
    settings.GATEWAY_HOME, settings.RECORD_SPOOL_SIZE = tmp_path, ROOM
    yield tmp_path
    if file := spool._own().pop(tmp_path, None):
        file.close()


def moved() -> list[tuple[str, bytes]]:
    """Return all moved records, from every process that spooled."""
    found: list[tuple[str, bytes]] = []
    spool.move(lambda worker, record: found.append((worker, record)))
    return found


def names(home: Path) -> list[str]:
    return sorted(f"{path.parent.name}/*{path.suffix}" for path in home.glob("spool*/*"))


def out_of_room(*_: Any) -> None:
    """Be a call that a full disk refuses."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def no_room_beyond(size: int) -> Callable[[int, bytes, int], int]:
    """Return what writes to a disk that has no block left beyond a file's first ones."""
    write = os.pwrite

    def full(descriptor: int, data: bytes, at: int) -> int:
        if at >= size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data[: size - at], at)

    return full


def test_the_room_is_taken_before_it_is_needed_and_has_no_holes(home: Path) -> None:
    spool.reserve()
    (path,) = home.glob("spool-reserve/*")
    assert (path.stat().st_size, path.stat().st_blocks * 512 >= ROOM) == (ROOM, True)
    assert list(home.glob("spool/*")) == []


def test_a_full_disk_takes_records_as_long_as_the_room_lasts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool.reserve()
    record, taken = b"x" * 1000, ROOM // (1000 + 20 + len("worker-1\t"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", no_room_beyond(ROOM))
        for _ in range(taken):
            spool.add("worker-1", record)
        with pytest.raises(OSError, match="No space left"):
            spool.add("worker-1", record)
    assert moved() == [("worker-1", record)] * taken
    assert moved() == []


def test_the_room_is_kept_when_it_has_been_emptied(home: Path) -> None:
    spool.reserve()
    before = names(home)
    spool.add("worker-1", b"{}")
    assert names(home) == ["spool/*.spool"]
    spool.add("worker-1", b"x" * ROOM)
    assert len(moved()) == 2
    assert names(home) == before == ["spool-reserve/*.reserve"]
    (path,) = home.glob("spool-reserve/*")
    assert path.stat().st_size == ROOM


def test_what_is_left_of_an_earlier_round_is_not_taken_for_records(home: Path) -> None:
    file = SpoolFile(home)
    file.reserve(ROOM)
    for number in range(3):
        file.add("worker-1", b"%d" % number)
    assert file.move(lambda *_: None) == 3
    file.add("worker-1", b"9")
    os.close(file._descriptor)
    assert moved() == [("worker-1", b"9")]


@pytest.mark.parametrize("cut", [1, 10, 19, 21, 30])
def test_half_a_record_is_none(home: Path, cut: int) -> None:
    """Whose writer died in the middle was never told that it is safe."""
    file = SpoolFile(home)
    file.reserve(ROOM)
    file.add("worker-1", b'{"n":1}')
    whole = file._written
    file.add("worker-1", b'{"n":2}')
    (path,) = home.glob("spool/*")
    with path.open("r+b") as written:
        written.seek(whole + cut)
        written.write(bytes(ROOM - whole - cut))
    os.close(file._descriptor)
    assert moved() == [("worker-1", b'{"n":1}')]
    assert names(home) == []


def test_records_that_are_added_while_others_are_moved_are_moved_too(home: Path) -> None:
    found: list[bytes] = []

    def push(_worker: str, record: bytes) -> None:
        found.append(record)
        if len(found) == 1:
            spool.add("worker-1", b"second")
            assert spool.move(push) == 0

    spool.add("worker-1", b"first")
    assert spool.move(push) == 2
    assert found == [b"first", b"second"]
    assert moved() == []


def test_what_is_not_pushed_stays(home: Path) -> None:
    spool.add("worker-1", b"1")
    spool.add("worker-1", b"2")
    seen: list[bytes] = []

    def push(_worker: str, record: bytes) -> None:
        if seen:
            raise ConnectionError
        seen.append(record)

    with pytest.raises(ConnectionError):
        spool.move(push)
    assert moved() == [("worker-1", b"2")]


_OTHER = """
import os, sys
from django.conf import settings
settings.configure(GATEWAY_HOME=sys.argv[1], RECORD_SPOOL_SIZE=65536)
from apps.gateway.settlement import spool
spool.reserve()
spool.add("worker-9", b"{}")
print("spooled", flush=True)
sys.stdin.read()
os._exit(9)
"""


def test_a_dead_process_s_file_is_anybody_s_and_a_living_one_s_is_not(home: Path) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", _OTHER, str(home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "spooled\n"
    assert moved() == []
    other.kill()
    other.wait(60)
    assert moved() == [("worker-9", b"{}")]
    assert names(home) == []


def test_a_dead_process_s_room_is_given_back(home: Path) -> None:
    file = SpoolFile(home)
    file.reserve(ROOM)
    assert moved() == []
    assert names(home) == ["spool-reserve/*.reserve"]
    os.close(file._descriptor)
    assert moved() == []
    assert names(home) == []


def test_a_process_that_had_no_room_at_its_start_takes_it_later(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", out_of_room)
        with pytest.raises(OSError, match="No space left"):
            spool.reserve()
    (path,) = home.glob("spool-reserve/*")
    assert path.stat().st_size == 0
    spool.reserve()
    assert path.stat().st_size == ROOM


def test_records_of_a_version_that_wrote_lines_are_moved(home: Path) -> None:
    (home / "spool").mkdir()
    (home / "spool" / "1.spool").write_bytes(b'host:1:a\t{"n":1}\nhost:1:a\t{"n":2')
    (home / "spool" / "a.replay").write_bytes(b"host:2:b\t{}\n")
    assert sorted(moved()) == [("host:1:a", b'{"n":1}'), ("host:2:b", b"{}")]
    assert names(home) == []


def test_what_the_disk_has_not_kept_is_put_aside(home: Path) -> None:
    spool.add("worker-1", b"{}")
    (path,) = home.glob("spool/*.spool")
    with path.open("r+b") as file:
        file.seek(25)
        file.write(b"?")
    assert moved() == []
    assert [name for name in names(home) if "broken" in name] == ["spool/*.broken"]
    spool.add("worker-1", b"next")
    assert moved() == [("worker-1", b"next")]


def test_the_room_is_asked_for_once_and_not_while_records_lie_in_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fallocate", lambda _, at, size: asked.append((at, size)))
    file = SpoolFile(home)
    for room in (10, 10, 9, 20):
        file.reserve(room)
    assert asked == [(0, 10), (0, 20)]
    file.add("worker-1", b"{}")
    file.reserve(30)
    assert asked == [(0, 10), (0, 20)]
    file.close()


def test_a_part_of_the_room_is_given_back(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = SpoolFile(home)
    (path,) = home.glob("spool-reserve/*")

    def half(descriptor: int, _: int, size: int) -> None:
        os.ftruncate(descriptor, size // 2)
        out_of_room()

    for room in (0, 1_000):
        with monkeypatch.context() as patch:
            patch.setattr(os, "posix_fallocate", half)
            with pytest.raises(OSError, match="No space left"):
                file.reserve(ROOM)
        assert path.stat().st_size == room
        file.reserve(1_000)
    file.close()


def test_without_the_call_for_room_it_is_written(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    spool.reserve()
    (path,) = home.glob("spool-reserve/*")
    assert (path.stat().st_size, path.stat().st_blocks * 512 >= ROOM) == (ROOM, True)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls that change the disk, in their order."""
    made: list[str] = []

    def note(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: made.append(name) or call(*args)

    for name in ("rename", "pwrite", "ftruncate", "fsync"):
        monkeypatch.setattr(os, name, note(name, getattr(os, name)))
    return made


def test_a_record_is_on_the_disk_before_it_counts_as_spooled(home: Path, steps: list[str]) -> None:
    spool.add("worker-1", b"1")
    assert steps == ["rename", "pwrite", "fsync"]
    spool.add("worker-1", b"2")
    assert steps[3:] == ["pwrite", "fsync"]
    steps.clear()
    assert moved() == [("worker-1", b"1"), ("worker-1", b"2")]
    # Empty on the disk, before it lies with the empty ones.
    assert steps == ["pwrite", "ftruncate", "fsync", "rename"]


def test_records_that_were_moved_are_not_moved_again_when_their_process_dies(home: Path) -> None:
    file = SpoolFile(home)
    file.reserve(ROOM)
    file.add("worker-1", b"1")
    assert file.move(lambda *_: None) == 1
    (path,) = home.glob("spool-reserve/*")
    assert path.read_bytes()[:20] == bytes(20)
    os.close(file._descriptor)
    assert moved() == []


@pytest.mark.parametrize("room", [0, ROOM])
def test_a_record_that_is_not_safe_is_not_in(home: Path, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """The disk has taken all its bytes, and cannot say that it keeps them."""
    file = SpoolFile(home)
    file.reserve(room)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", out_of_room)
        with pytest.raises(OSError, match="No space left"):
            file.add("worker-1", b"0")
    assert (names(home), file.waiting) == (["spool-reserve/*.reserve"], False)
    file.add("worker-1", b"1")
    (path,) = home.glob("spool/*")
    size = path.stat().st_size
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", out_of_room)
        with pytest.raises(OSError, match="No space left"):
            file.add("worker-1", b"2")
    assert (names(home), path.stat().st_size) == (["spool/*.spool"], size)
    file.add("worker-1", b"3")
    found: list[bytes] = []
    assert file.move(lambda _, record: found.append(record)) == 2
    assert found == [b"1", b"3"]
    file.close()


def test_a_write_may_take_a_part_at_a_time(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, at: write(descriptor, data[:7], at))
    spool.add("worker-1", bytes(range(100)))
    assert moved() == [("worker-1", bytes(range(100)))]


@pytest.mark.parametrize("size", [0, (1 << 20) - 1, 1 << 20, (2 << 20) + 1])
def test_a_record_of_any_size_comes_back_whole(home: Path, size: int) -> None:
    record = os.urandom(size)
    spool.add("", record)
    spool.add("", b"")
    assert moved() == [("", record), ("", b"")]


def test_a_file_that_is_closed_is_gone_if_it_is_empty_and_anybodys_if_not(home: Path) -> None:
    empty, full, gone = (SpoolFile(home) for _ in range(3))
    full.add("worker-1", b"{}")
    gone._empty.unlink()
    for file in (empty, full, gone):
        file.close()
        assert not is_open(file._descriptor)
    assert names(home) == ["spool/*.spool"]
    assert moved() == [("worker-1", b"{}")]


def test_a_file_that_somebody_has_removed_is_made_again(home: Path) -> None:
    spool.add("worker-1", b"removed")
    before = spool._own()[home]
    assert before.usable
    before._full.unlink()
    assert not before.usable
    assert moved() == []
    opened = len(os.listdir("/dev/fd"))
    spool.add("worker-1", b"kept")
    assert len(os.listdir("/dev/fd")) == opened, "the removed one is closed"
    assert moved() == [("worker-1", b"kept")]


def test_a_forked_child_has_a_file_of_its_own(home: Path) -> None:
    spool.add("worker-1", b"parent")
    parent = spool._own()[home]
    spool._forget_own()
    spool.add("worker-2", b"child")
    assert names(home) == ["spool/*.spool"] * 2
    assert moved() == [("worker-2", b"child")]
    parent.close()
    assert moved() == [("worker-1", b"parent")]


def test_records_of_all_files_are_counted(home: Path) -> None:
    assert spool.move(lambda *_: None) == 0
    file = SpoolFile(home)
    file.add("worker-1", b"locked")
    assert spool.move(lambda *_: None) == 0
    (home / "spool" / "1.spool").write_bytes(b"worker-2\t1\nworker-2\t2\n")
    (home / "spool" / "2.replay").write_bytes(b"worker-3\t3\n")
    assert spool.move(lambda *_: None) == 3
    file.close()
    spool.add("worker-4", b"own")
    assert spool.move(lambda *_: None) == 2


def test_only_the_gateways_own_user_reads_what_is_spooled(tmp_path: Path) -> None:
    home = tmp_path / "not" / "there"
    file = SpoolFile(home)
    file.add("worker-1", b"{}")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (home / "spool", home / "spool-reserve", file._full)]
    assert modes == [0o700, 0o700, 0o600]
    file.close()


def test_a_new_file_that_is_taken_for_a_dead_processs_is_made_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, opened = fcntl.flock, list[int]()

    def lock_after_another(descriptor: int, how: int) -> None:
        if not opened:
            # Another process has removed it in the moment before it is locked.
            for path in home.glob("spool-reserve/*"):
                path.unlink()
        opened.append(descriptor)
        lock(descriptor, how)

    closed: list[int] = []
    close = os.close
    monkeypatch.setattr(os, "close", lambda descriptor: closed.append(descriptor) or close(descriptor))
    monkeypatch.setattr(fcntl, "flock", lock_after_another)
    file = SpoolFile(home)
    assert (len(opened), closed, file.usable) == (2, opened[:1], True)
    file.close()

"""The spool: room that is taken beforehand, frames that tell whether they are whole, files of the dead."""

from __future__ import annotations

import errno
import os
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
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
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

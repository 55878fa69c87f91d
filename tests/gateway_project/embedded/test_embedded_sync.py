"""Valkey's writes get to the disk, beside it or by itself, and a failure to do so is reported."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from redis import Redis

from gateway_project import embedded
from gateway_project.configuration import data_directory
from gateway_project.embedded import aof_fsync


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, and no PostgreSQL of its own: none is asked."""
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody.example/none")
    monkeypatch.delenv("REDIS_URL", raising=False)
    return tmp_path


def flushers_of(folder: Path) -> list[str]:
    """The command lines of flushers that look after a folder."""
    lines = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    return [line for line in lines if f"aof_fsync.py {folder}" in line]


def test_what_valkey_wrote_gets_to_the_disk_beside_it(place: Path) -> None:
    with embedded.running(place) as stores:
        assert len(flushers_of(place / "valkey" / "appendonlydir")) == 1
        Redis.from_url(stores.redis_url).set("kept", 1)
        (written,) = (place / "valkey" / "appendonlydir").glob("*.incr.aof")
        assert written.stat().st_size > 0
    assert flushers_of(place) == []


def test_valkey_itself_may_wait_for_the_disk(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VALKEY_SYNC", "always")
    with embedded.running(place) as stores:
        assert Redis.from_url(stores.redis_url, decode_responses=True).config_get("appendfsync") == {
            "appendfsync": "always"
        }
        assert flushers_of(place) == []


def test_another_word_for_when_to_sync_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VALKEY_SYNC", "never")
    with pytest.raises(embedded.StoreError, match="VALKEY_SYNC is 'never': make it second or always"):
        embedded.choose_stores(place)
    assert list(place.iterdir()) == []


def test_the_disk_is_asked_for_what_changed_only(tmp_path: Path) -> None:
    synced: list[bytes] = []

    def sync(descriptor: int) -> None:
        synced.append(os.pread(descriptor, 100, 0))

    one, two = tmp_path / "1.base.aof", tmp_path / "1.incr.aof"
    one.write_bytes(b"one")
    two.write_bytes(b"two")
    (tmp_path / "manifest").write_bytes(b"another's")
    known = aof_fsync.flush(tmp_path, {}, sync)
    assert sorted(synced) == [b"one", b"two"]
    with two.open("ab") as file:
        file.write(b", three")
    known = aof_fsync.flush(tmp_path, known, sync)
    assert synced[2:] == [b"two, three"]
    two.unlink()
    assert set(aof_fsync.flush(tmp_path, known, sync)) == {one}
    assert len(synced) == 3


def test_a_disk_that_fails_is_told_of_once(tmp_path: Path) -> None:
    broken = tmp_path / "1.incr.aof"
    broken.symlink_to(broken)
    program = (
        "import sys; from gateway_project.embedded import aof_fsync as f; f.PAUSE = 0.01; f.main(f.Path(sys.argv[1]))"
    )
    flusher = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=data_directory.PROJECT
    )
    assert flusher.stdout
    assert "does not get to the disk: [Errno" in flusher.stdout.readline()
    # It tries again twenty times meanwhile.
    time.sleep(0.2)
    flusher.kill()
    assert flusher.stdout.read() == ""
    flusher.wait()
    flusher.stdout.close()

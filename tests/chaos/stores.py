"""Faults of stores that need more than a signal: older copies, restored backups, a full disk, a clock set back."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import requests

from tests.chaos.scene import Scene
from tests.stack.chaos import send_signal
from tests.stack.product import PROJECT, eventually
from tests.support.documented_examples import operations_commands

# --- Valkey


def valkey_older(scene: Scene, seconds: float) -> int:
    """Copy Valkey's files in a quiet moment, go on, and in another quiet moment put the copy in their place."""
    data, copy = scene.home / "valkey", scene.home / "valkey.copy"
    with scene.quiet():
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(data, copy)
    time.sleep(seconds / 2)
    with scene.quiet():
        os.kill(scene.product.pid, signal.SIGSTOP)
        try:
            pids = scene.pids("valkey")
            send_signal(pids, signal.SIGKILL)
            eventually(lambda: not any(_lives(pid) for pid in pids))
            shutil.rmtree(data)
            copy.rename(data)
        finally:
            os.kill(scene.product.pid, signal.SIGCONT)
        eventually(lambda: _answers(scene), patience=30)
    time.sleep(seconds / 2)
    return 1


def _lives(pid: int) -> bool:
    """Return whether a process runs; one that is dead and not yet missed does not."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def _answers(scene: Scene) -> bool:
    with suppress(Exception):
        return bool(scene.valkey.ping())
    return False


# --- PostgreSQL


def restored(scene: Scene, seconds: float) -> int:
    """Dump the database, go on, and restore it, by the words of docs/operations.md.

    Before the dump an organization has money and another has none; after it, the one spends all and the other is given
    some; after the restore the first must be served and the second refused. Requests in between are forgotten with that
    time.
    """
    assert scene.clients is not None
    with scene.quiet():
        _run(scene, operations_commands("backup"))
        before = set(scene.clients.seen.asked)
    scene.product.manage("grant_credits", scene.empty, "5")
    time.sleep(seconds)
    with scene.quiet():
        between = scene.clients.seen.asked - before
        forget(scene, between)
        _run(scene, operations_commands("restore"))
        time.sleep(1)
    time.sleep(seconds)
    return 1


def forget(scene: Scene, asked: set[str]) -> None:
    """Drop these requests from the comparison: the restored database has no trace of their time."""
    assert scene.clients is not None
    heard, seen = scene.clients.heard, scene.clients.seen
    for ids in (heard.parts, heard.unreserved_parts, heard.failed, heard.broken, heard.hung, seen.complete, seen.asked):
        ids -= asked
    for told in (heard.costs, heard.refused):
        for request_id in asked & set(told):
            del told[request_id]


def _run(scene: Scene, commands: str) -> None:
    """Run commands of the documentation on the scene's home. Raises ChildProcessError with what they say."""
    words = commands
    for name in ("gateway.dump", "gateway.sql"):
        words = words.replace(name, str(scene.home / name))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", words],
        cwd=PROJECT,
        env=scene.product.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        scene.notes.append(f"the documented commands end with {done.returncode}: {said[0] if said else ''}"[:160])


# --- a clock that goes back

_LIBRARIES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/local/lib/faketime/libfaketimeMT.so.1")


def _faketime() -> Path | None:
    return next((path for pattern in _LIBRARIES for path in Path("/").glob(pattern.lstrip("/"))), None)


def no_faketime() -> str | None:
    """Return why the clock cannot be set back for one process alone."""
    return None if _faketime() else "libfaketime is not installed (Debian: apt install faketime)"


@contextmanager
def faked_valkey(folder: Path) -> Iterator[dict[str, str]]:
    """Run a Valkey whose clock is the file `clock` in a folder; yield the settings of a product that uses it."""
    from gateway_project.embedded.programs import find_valkey

    clock, socket = folder / "clock", folder / "valkey.sock"
    clock.write_text("+0\n")
    faked = {"LD_PRELOAD": str(_faketime()), "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1"}
    faked["FAKETIME_DONT_FAKE_MONOTONIC"] = "1"
    words = ["--port", "0", "--unixsocket", str(socket), "--dir", str(folder), "--appendonly", "yes", "--save", ""]
    process = subprocess.Popen(
        [str(find_valkey()), *words, "--appendfsync", "always"],
        env={"PATH": os.defpath, **faked},
        stdout=subprocess.DEVNULL,
    )
    try:
        eventually(socket.exists)
        yield {"REDIS_URL": f"unix://{socket}?db=0", "VALKEY_SYNC": "always"}
    finally:
        process.kill()
        process.wait(10)


def clock_back(scene: Scene, seconds: float) -> int:
    """Set Valkey's clock an hour back, for good."""
    clock = Path(scene.settings["REDIS_URL"].removeprefix("unix://").partition("?")[0]).parent / "clock"
    clock.write_text("-3600\n")
    time.sleep(seconds)
    return 1


# --- a full disk

_DISK_MB = 1_500


def no_mounts() -> str | None:
    """Return why no small disk can be mounted. Where one can, mounts of this process are its own from now on."""
    if os.geteuid() != 0:
        return "only root can mount a small disk"
    if not hasattr(no_mounts, "private"):
        # CLONE_NEWNS; Python has it from 3.12 on.
        if ctypes.CDLL(None, use_errno=True).unshare(0x00020000):
            return "this machine does not let anybody have mounts of their own"
        private = subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True, check=False)
        if private.returncode:
            return "mounts cannot be made private here"
        no_mounts.private = True  # type: ignore[attr-defined]  # a function remembers it
    return None


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Mount a small disk in a folder, which no other process sees; yield it."""
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK_MB}m,mode=755", "tmpfs", str(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=False)


@contextmanager
def without_room(folder: Path) -> Iterator[dict[str, str]]:
    """Yield the settings of a product that keeps no room on its disk for records."""
    yield {"RECORD_SPOOL_SIZE": "0"}


def disk_full(scene: Scene, seconds: float) -> int:
    """Fill the disk to its last byte, stay so, and make room again."""
    filler = scene.home.parent / "filler"
    until = time.monotonic() + seconds
    with filler.open("wb", buffering=0) as file:
        while time.monotonic() < until:
            with suppress(OSError):
                while True:
                    file.write(bytes(65_536))
            with suppress(OSError):
                while True:
                    file.write(bytes(512))
            time.sleep(0.02)
    with suppress(requests.RequestException):
        # Records may be waiting for room: no load balancer is to send more of them.
        if (status := requests.get(scene.product.url, timeout=5).status_code) != 503:
            scene.notes.append(f"health said {status}")
    filler.unlink()
    return 1

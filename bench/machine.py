"""The machine that measures: its cores and who runs on which, what a process has used, and the clients."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from bench.subjects import Kind, Subject
from tests.stack.product import descendants


def _cores() -> tuple[set[int], set[int]]:
    """Return the core of who is measured, and those of all others; on a machine with one core they share it."""
    cores = sorted(os.sched_getaffinity(0))
    return {cores[0]}, set(cores[1:]) or {cores[0]}


MEASURED, OTHERS = _cores()


def pin(pids: list[int], cores: set[int]) -> None:
    """Keep processes, with all of their threads and children, on some cores; what ends meanwhile needs none."""
    for pid in pids:
        for one in [pid, *descendants(pid)]:
            with suppress(FileNotFoundError, ProcessLookupError):
                for task in os.listdir(f"/proc/{one}/task"):
                    with suppress(ProcessLookupError):
                        os.sched_setaffinity(int(task), cores)


def run_at_once(pid: int = 0) -> None:
    """Give a process, or by default this thread, a core as soon as it needs one, as on a machine of its own.

    Where that takes rights that the user lacks, it stays as it is.
    """
    with suppress(AttributeError, PermissionError, ProcessLookupError):
        os.sched_setscheduler(pid, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))


_CLONE_NEWNET, _SIOCSIFFLAGS, _IFF_UP = 0x40000000, 0x8914, 1


def isolate() -> bool:
    """Give this process, and those it starts from now on, a network with loopback alone; return whether that worked.

    Linux only, and as root.
    """
    if sys.platform != "linux" or ctypes.CDLL(None).unshare(_CLONE_NEWNET):
        return False
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
    return True


def load(
    subject: Subject,
    kind: Kind,
    *,
    connections: int,
    seconds: float,
    rate: float | None = None,
    cores: set[int] = OTHERS,
) -> dict[str, float]:
    """Run the clients in a process of their own, on some cores; return its figures (`load.run`)."""
    task = {
        "port": subject.port,
        "request": subject.request(kind).decode(),
        "connections": connections,
        "seconds": seconds,
        "rate": rate,
    }
    done = subprocess.run(
        [sys.executable, "-m", "bench.load"],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds + 120,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    if done.returncode:
        raise ChildProcessError(f"{subject.name}: {done.stderr[-200:]}")
    return dict(json.loads(done.stdout))


def cpu_seconds(pid: int) -> float:
    """Return the processor time a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def threads_cpu_seconds(pids: Iterable[int]) -> float:
    """Return the processor time that living threads of processes have used, to the nanosecond."""
    total = 0
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


def resident_mb(pid: int) -> float:
    """Return a process's memory that is its own, in MB."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) / 1024

"""Child processes, with a CPU priority, that end when their parent ends, even when it is killed (PR_SET_PDEATHSIG); and
the folders of their Unix sockets, for whose paths there is room for about a hundred bytes.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

# sched_setattr(2), which neither Python nor older C libraries name, and its `struct sched_attr`: size, policy, flags,
# nice, priority, runtime, deadline, period.
_NUMBERS = {"x86_64": 314, "aarch64": 274}
_LAYOUT = "=IIQiIQQQ"
# Nanoseconds: somewhat more than Linux gives others (3 ms at most, unless it is configured). A process whose slice
# ends earlier interrupts one when it wakes up. One that already waits does not: for it a long slice is a long wait.
_SLICE = 4_000_000


def lower_scheduling_priority() -> None:
    """Let others go first from now on, in this process and those it starts; their share of the cores stays the same.

    It does not interrupt other processes by waking up (SCHED_BATCH), and they interrupt it (its slice is longer than
    theirs; Linux before 6.12 has no slices). Does nothing where the system does not support this.
    """
    number = _NUMBERS.get(platform.machine())
    if sys.platform != "linux" or number is None:
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = struct.pack(_LAYOUT, struct.calcsize(_LAYOUT), os.SCHED_BATCH, 0, nice, 0, _SLICE, 0, 0)
    ctypes.CDLL(None).syscall(number, 0, attributes, 0)


_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@dataclass(frozen=True)
class SystemUser:
    """Whom a process runs as."""

    uid: int
    gid: int


def spawn(
    argv: Sequence[str | Path],
    *,
    output: int | IO[bytes],
    env: Mapping[str, str],
    cwd: Path | str = "/",
    user: SystemUser | None = None,
    orphan_signal: signal.Signals = signal.SIGKILL,
    background: bool = False,
    descriptors: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own; it gets `orphan_signal` when this process dies. Raises OSError.

    A process in the `background` yields to the others on a shared core. It inherits the `descriptors`.
    Call it from the main thread: on Linux the leash hangs on the thread that made the child. Elsewhere there is no
    leash, and the next start ends leftover processes (`stop_leftover`).
    """
    return subprocess.Popen(
        [os.fspath(word) for word in argv],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=dict(env),
        cwd=cwd,
        start_new_session=True,
        pass_fds=descriptors,
        preexec_fn=_leash(orphan_signal, background=background),
        user=user.uid if user else None,
        group=user.gid if user else None,
        extra_groups=[] if user else None,
    )


def _leash(orphan_signal: signal.Signals, *, background: bool) -> Callable[[], None] | None:
    """Return what the child does between fork and exec; the change of user, which would undo it, is then done."""
    if _libc is None:
        return None
    parent = os.getpid()

    def fasten() -> None:
        leash(parent, orphan_signal)
        if background:
            lower_scheduling_priority()

    return fasten


def leash(parent: int, orphan_signal: signal.Signals) -> None:
    """Have this process sent the signal when its parent dies; Linux only."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(orphan_signal))
    if os.getppid() != parent:  # It died before the leash was on.
        os.kill(os.getpid(), signal.SIGKILL)


def stop_child(process: subprocess.Popen[bytes], stop: signal.Signals, force: signal.Signals, patience: float) -> None:
    """Ask the process to stop, and make it stop when it has not after `patience` seconds."""
    for kind in (stop, force, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(kind)
            with suppress(subprocess.TimeoutExpired):
                process.wait(patience)


def stop_leftover(pid_file: Path, program: str, folder: Path, stop: signal.Signals, patience: float = 15) -> None:
    """End the process that a killed parent left behind: the one in `pid_file`, if it is `program` run on `folder`.

    The number may be another process's by now, which is let alone; the file is then removed.
    """
    try:
        pid = int(pid_file.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return
    deadline, kind = time.monotonic() + patience, stop
    while _is(pid, program, folder):
        with suppress(ProcessLookupError):
            os.kill(pid, kind)
        while _is(pid, program, folder) and time.monotonic() < deadline:
            time.sleep(0.05)
        deadline, kind = time.monotonic() + patience, signal.SIGKILL
    pid_file.unlink(missing_ok=True)


def _is(pid: int, program: str, folder: Path) -> bool:
    """Is the process alive, and `program` with `folder` among its arguments?"""
    command = _command_of(pid)
    return program in command and str(folder) in command


def _command_of(pid: int) -> str:
    """Return the command line of a process, empty when there is none."""
    if sys.platform == "linux":
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="surrogateescape")
        except OSError:
            return ""
    listed = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return listed.stdout


# macOS has room for 103 bytes, Linux for 107.
_ROOM = 103


def socket_folder(preferred: Path, socket_name: str, link: Path, owner: SystemUser | None) -> Path:
    """Return `preferred` if a socket's path fits there, else a short private folder that `link` remembers.

    A comma does not fit either: PostgreSQL's clients read it as the end of one host and the start of the next.
    """
    if len(os.fsencode(preferred / socket_name)) <= _ROOM and "," not in str(preferred):
        return preferred
    uid = owner.uid if owner else os.geteuid()
    if link.is_symlink():
        folder = link.readlink()
        if _is_private(folder, uid):
            return folder
        link.unlink()
    folder = Path(tempfile.mkdtemp(prefix="gateway-", dir=_short_temporary_folder(socket_name)))
    if owner:
        os.chown(folder, owner.uid, owner.gid)
    link.symlink_to(folder)
    return folder


def _is_private(folder: Path, uid: int) -> bool:
    """Return whether it is a real folder that only that user may enter: others can create names in a temporary one."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid and not found.st_mode & 0o077


def _short_temporary_folder(socket_name: str) -> str:
    usual = tempfile.gettempdir()
    fits = len(os.fsencode(usual)) + len("/gateway-12345678/") + len(socket_name) <= _ROOM
    return usual if fits else "/tmp"  # noqa: S108 - a private folder with a name of its own is made in it

"""Prometheus multiprocess files, preallocated on disk.

The library maps files with holes into memory. Where the disk is full, to write to a hole is not an error that could be
handled: the kernel kills the process. Here files have all their blocks before they are mapped; a process that cannot
have them counts in memory of its own, and what it counts is not told. Knows the library's files. Must never know what
is counted.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from prometheus_client import mmap_dict, values


def install() -> None:
    """Have this process's metrics kept so. To be called before the first metric is made."""
    # The library offers no other way in.
    vars(values)["MmapedDict"] = PreallocatedMetricFile


def forget_dead_processes() -> None:
    """Remove what processes that are gone counted as being under way. One that was killed could not do so itself."""
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    for file in Path(folder).glob("gauge_live*_*.db") if folder else ():
        pid = file.stem.rpartition("_")[2]
        if pid.isdecimal() and not _is_alive(int(pid)):
            file.unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        # Somebody else's: it is there.
        pass
    return True


class PreallocatedMetricFile(mmap_dict.MmapedDict):
    """The library's mapped file, without holes."""

    def __init__(self, filename: str, read_mode: bool = False) -> None:
        # Of keys that there was no room for.
        self._elsewhere: dict[str, tuple[float, float]] = {}
        self._hidden = -1
        if not read_mode and hasattr(os, "posix_fallocate"):
            filename = self._solid(filename)
        super().__init__(filename, read_mode)  # type: ignore[no-untyped-call]  # the library types only some

    def _solid(self, filename: str) -> str:
        """Return the name of a file that has all its blocks: this one, or one of memory."""
        descriptor = os.open(filename, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            os.posix_fallocate(descriptor, 0, max(os.fstat(descriptor).st_size, mmap_dict._INITIAL_MMAP_SIZE))
            return filename
        except OSError:
            # An empty one could not even be read.
            os.unlink(filename)
            self._hidden = os.memfd_create("metrics")
            return f"/proc/self/fd/{self._hidden}"
        finally:
            os.close(descriptor)

    def read_value(self, key: str) -> Any:
        """Return a key's value and its time."""
        if not self._has_room(key):
            return self._elsewhere.get(key, (0.0, 0.0))
        return super().read_value(key)  # type: ignore[no-untyped-call]  # as above

    def write_value(self, key: str, value: float, timestamp: float) -> None:
        """Set a key's value."""
        if self._has_room(key):
            super().write_value(key, value, timestamp)  # type: ignore[no-untyped-call]  # as above
        else:
            self._elsewhere[key] = (value, timestamp)

    def close(self) -> None:
        """Let go of the file."""
        super().close()  # type: ignore[no-untyped-call]  # as above
        if self._hidden >= 0:
            os.close(self._hidden)
            self._hidden = -1

    def _has_room(self, key: str) -> bool:
        """Have room for a key; tell whether there is."""
        if key in self._positions or not hasattr(os, "posix_fallocate"):
            return True
        # Its length, its text padded to eight, two numbers.
        wanted = self._used + 4 + len(key.encode()) + 8 + 16
        capacity = self._capacity
        while capacity < wanted:
            capacity *= 2
        if capacity > self._capacity:
            try:
                os.posix_fallocate(self._f.fileno(), self._capacity, capacity - self._capacity)
            except OSError:
                return False
        return True

"""CPU scheduling priority: processes that answer clients run before background processes."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

# sched_setattr(2), which neither Python nor older C libraries name, and its `struct sched_attr`: size, policy, flags,
# nice, priority, runtime, deadline, period.
_NUMBERS = {"x86_64": 314, "aarch64": 274}
_LAYOUT = "=IIQiIQQQ"
# Nanoseconds, the longest that Linux takes. The longer a slice is, the later is its end, and whose is earlier runs.
_SLICE = 100_000_000


def lower_scheduling_priority() -> None:
    """Let others go first from now on, in this process and those it starts; their share of the cores stays the same.

    It does not interrupt other processes by waking up (SCHED_BATCH), and they interrupt it (its slice is the longest;
    Linux before 6.12 has no slices). Does nothing where the system does not support this.
    """
    number = _NUMBERS.get(platform.machine())
    if sys.platform != "linux" or number is None:
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = struct.pack(_LAYOUT, struct.calcsize(_LAYOUT), os.SCHED_BATCH, 0, nice, 0, _SLICE, 0, 0)
    ctypes.CDLL(None).syscall(number, 0, attributes, 0)

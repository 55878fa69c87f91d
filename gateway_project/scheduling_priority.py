"""Who waits for whom where processes share a core: what works in the background lets those go first who answer.

Knows Linux' scheduler. Must never know what a process is for.
"""

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

    It interrupts nobody by waking up (SCHED_BATCH), and who wakes up interrupts it (its slice is the longest; Linux
    before 6.12 does not know slices). Where that is not to be had nothing changes.
    """
    number = _NUMBERS.get(platform.machine())
    if sys.platform != "linux" or number is None:
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = struct.pack(_LAYOUT, struct.calcsize(_LAYOUT), os.SCHED_BATCH, 0, nice, 0, _SLICE, 0, 0)
    ctypes.CDLL(None).syscall(number, 0, attributes, 0)

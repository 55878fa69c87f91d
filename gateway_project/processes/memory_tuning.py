"""Memory tuning: garbage is collected less often, and memory of large bodies returns to the system when they are freed.

A process creates hundreds of thousands of permanent objects at its start; scanning them repeatedly takes a fifth of the
start time, and later work leaves few cycles behind. glibc raises the size from which it asks the system for a block of
its own each time that such a block is freed: after one body of 32 MB, all like it come from a heap that shrinks only
from its end. Fixed sizes keep it from doing so. That does nothing with another C library.
"""

from __future__ import annotations

import ctypes
import gc
from typing import Final

# The number of new objects that starts a collection of the youngest generation: more than the
# requests hold that a worker answers at a time. The worker answers no requests during a collection.
THRESHOLD: Final = 10_000
# After so many looks at new objects, those that outlived one are looked through as well. Ten looks' worth of twice as
# many objects, as it was, held a worker up for 183 to 218 ms when a thousand streams had begun; two looks' worth, 35 to
# 80.
YOUNG_LOOKS: Final = 2
# After so many of these, all objects that are not frozen: every two million new ones.
WHOLE_LOOKS: Final = 70


def collect_less_often() -> None:
    """Set how often cycles are looked for, for this process from now on."""
    gc.set_threshold(THRESHOLD, YOUNG_LOOKS, WHOLE_LOOKS)


# glibc's numbers of the parameters, from its <malloc.h>.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
# Bytes from which a block is the system's own; free bytes at the heap's end that are given back; heaps of threads.
_BLOCK: Final = 1024 * 1024
_FREE_AT_END: Final = 16 * 1024 * 1024
_ARENAS: Final = 2


def return_freed_memory() -> bool:
    """Set how the C library keeps memory, for this process from now on; False if it has no such setting."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    wishes = ((_MMAP_THRESHOLD, _BLOCK), (_TRIM_THRESHOLD, _FREE_AT_END), (_ARENA_MAX, _ARENAS))
    return all(mallopt(name, value) == 1 for name, value in wishes)

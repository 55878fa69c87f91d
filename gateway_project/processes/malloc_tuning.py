"""malloc tuning: memory that large bodies took goes back to the system as soon as they are freed.

glibc raises the size from which it asks the system for a block of its own each time that such a block is freed: after
one body of 32 MB, all like it come from a heap that shrinks only from its end. Fixed sizes keep it from doing so. Does
nothing with another C library.
"""

from __future__ import annotations

import ctypes
from typing import Final

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

"""Garbage collection tuning: cycles are looked for less often than Python does by itself.

A process that starts makes hundreds of thousands of objects that stay; to look through them again and again takes a
fifth of the time until it is ready. What it does later leaves few cycles behind. Must never know a request.
"""

from __future__ import annotations

import gc
from typing import Final

# How many more objects there are than at the last look when cycles are looked for among the new ones: more than the
# requests hold that a worker answers at a time. Nobody is answered meanwhile.
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

"""How many examples a property test tries: its own number in the suite, many more in a long run.

A long run looks for what the suite's few examples meet once in a thousand runs:

    script/test --hypothesis-profile=long --timeout=0 tests/guardrails/text/test_folding.py
"""

from __future__ import annotations

from hypothesis import settings

LONG = "long"
# For a property without stores, and for one whose every example writes to the stores.
MANY, MANY_WITH_STORES = 20_000, 1_000


def examples(usual: int, *, long: int = MANY) -> int:
    """Return how many examples a test tries: `usual`, in a long run `long`."""
    return long if settings.get_current_profile_name() == LONG else usual

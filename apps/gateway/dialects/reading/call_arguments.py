"""A call's arguments: which texts of them say nothing, whichever format they came in."""

from __future__ import annotations

from typing import Final

# Values that models and providers write for a call without arguments, instead of an empty object.
_NOTHING: Final = frozenset({"", "null", '""'})


def is_empty_arguments(arguments: str) -> bool:
    """Return whether the text of a call's arguments stands for no arguments."""
    return arguments.strip() in _NOTHING

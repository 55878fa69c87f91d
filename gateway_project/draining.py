"""Node draining: a node that is about to stop says so first, and load balancers send their requests elsewhere.

`gateway drain [SECONDS]` leaves a mark in the home and waits; `/readyz` answers 503 while the mark is there. A web
process that starts takes it away. Knows the mark. Must never stop anything: who asked for it does that afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from gateway_project import data_directory
from gateway_project.terminal_output import print_line

# Seconds: longer than what load balancers usually need to notice, twice five and a little.
_USUAL_PATIENCE, _MOST_PATIENCE = 15, 3600


def main(arguments: Sequence[str]) -> int:
    """Begin to drain, wait for so many seconds, and return the exit code."""
    text = arguments[0] if arguments else str(_USUAL_PATIENCE)
    if len(arguments) > 1 or not text.isdecimal() or int(text) > _MOST_PATIENCE:
        print_line(f"usage: gateway drain [SECONDS], at most {_MOST_PATIENCE}")
        return 2
    try:
        begin()
    except OSError as error:
        print_line(f"this node cannot be drained: {error}")
        return 1
    print_line(f"/readyz says 503 from now on; waiting {text} s until nobody sends requests any more")
    time.sleep(int(text))
    return 0


def begin() -> None:
    """Leave the mark. Raises OSError."""
    _mark().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _mark().touch()


def end() -> None:
    """Take the mark away, if it is there."""
    try:
        _mark().unlink(missing_ok=True)
    except OSError:
        # Of a home that cannot be written, which the start itself tells of.
        pass


def is_node_draining() -> bool:
    """Tell whether the mark is there."""
    return _mark().exists()


def _mark() -> Path:
    return data_directory.path() / "run" / "draining"

"""Node draining: a node says that it is about to stop, so that load balancers send requests to other nodes.

`gateway drain [SECONDS]` leaves a mark in the home and waits; `/readyz` answers 503 while the mark is there. A web
process that starts takes it away. This module stops nothing; the caller stops the server afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from gateway_project.configuration import data_directory
from gateway_project.configuration.terminal_output import print_line

# Seconds: longer than what load balancers usually need to notice, twice five and a little.
_USUAL_PATIENCE, _MAX_PATIENCE = 15, 3600


def main(arguments: Sequence[str]) -> int:
    """Begin to drain, wait for so many seconds, and return the exit code."""
    text = arguments[0] if arguments else str(_USUAL_PATIENCE)
    if len(arguments) > 1 or not text.isdecimal() or int(text) > _MAX_PATIENCE:
        print_line(f"usage: gateway drain [SECONDS], at most {_MAX_PATIENCE}")
        return 2
    try:
        begin()
    except OSError as error:
        print_line(f"this node cannot be drained: {error}")
        return 1
    print_line(f"/readyz answers 503 from now on; waiting {text} s until no more requests arrive")
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
        # The home is not writable; the start reports that itself.
        pass


def is_node_draining() -> bool:
    """Tell whether the mark is there."""
    return _mark().exists()


def _mark() -> Path:
    return data_directory.path() / "run" / "draining"

"""Terminal output of the server."""

from __future__ import annotations

import os
import re
import sys

# A routine log line of development (`log.py`).
_ROUTINE = re.compile(r"\S+Z \[(debug|info) ")


def print_line(text: str) -> None:
    """Tell the terminal. Serving goes on when no one listens there any more."""
    try:
        os.write(sys.stdout.fileno(), f"{text}\n".encode())
    except OSError:
        pass


def print_process_line(name: str, line: str) -> None:
    """Tell the terminal what a process said."""
    print_line(f"{name} | {line}")


def print_important_line(name: str, line: str) -> None:
    """Print a line of a process, except routine log lines, which are in the process's log file only."""
    if _ROUTINE.match(line) is None:
        print_process_line(name, line)

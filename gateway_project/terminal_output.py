"""What the server tells the terminal it was started from."""

from __future__ import annotations

import os
import sys


def print_line(text: str) -> None:
    """Tell the terminal. Serving goes on when no one listens there any more."""
    try:
        os.write(sys.stdout.fileno(), f"{text}\n".encode())
    except OSError:
        pass


def print_process_line(name: str, line: str) -> None:
    """Tell the terminal what a process said."""
    print_line(f"{name} | {line}")

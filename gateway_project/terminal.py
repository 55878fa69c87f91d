"""What the server tells the terminal it was started from."""

from __future__ import annotations

import os
import sys


def say(text: str) -> None:
    """Tell the terminal. Serving goes on when no one listens there any more."""
    try:
        os.write(sys.stdout.fileno(), f"{text}\n".encode())
    except OSError:
        pass


def say_for(name: str, line: str) -> None:
    """Tell the terminal what a process said."""
    say(f"{name} | {line}")

"""A program in a terminal of its own: what it writes is read as a person reads it, and keys are pressed."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

PATIENCE = 60.0
# Sequences that move, colour, or name a link; where one moves the cursor there may have been a blank.
_LINKS = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_SEQUENCES = re.compile(r"\x1b\[[0-9;?<>=]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>78]")
_ROWS, _COLUMNS = 50, 240


class Terminal:
    """A terminal and the program in it."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self._process, self._descriptor = process, descriptor
        self._written = b""
        self._read_to = 0

    @property
    def text(self) -> str:
        """All that was written so far, in words; blanks that a cursor jumped over are blanks."""
        return _SEQUENCES.sub(" ", _LINKS.sub("", self._written.decode(errors="replace")))

    def wait(self, words: str) -> str:
        """Wait until it says something new that has these words (a regular expression; a blank is any space), and
        return what it said. Raises TimeoutError."""
        wanted = re.compile(words.replace(" ", r"\s+"))
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if found := wanted.search(self.text, self._read_to):
                self._read_to = found.end()
                return found[0]
            if not self._read():
                break
        raise TimeoutError(f"{words}\n{self.text[-4000:]}")

    def press(self, keys: str) -> None:
        """Press keys, as a terminal sends them."""
        os.write(self._descriptor, keys.encode())

    def end(self) -> int:
        """Wait for the program's end, and return its exit code. Raises TimeoutError."""
        until = time.monotonic() + PATIENCE
        while self._read():
            if time.monotonic() > until:
                raise TimeoutError(self.text[-4000:])
        return self._process.wait(PATIENCE)

    def _read(self) -> bool:
        """Read the output since the last call; return False when no more will come."""
        ready, _, _ = select.select([self._descriptor], [], [], 0.2)
        if not ready:
            return True
        try:
            more = os.read(self._descriptor, 65_536)
        except OSError:
            # On Linux that is how a terminal ends.
            return False
        self._written += more
        return bool(more)


@contextmanager
def terminal(command: Sequence[str | Path], folder: Path, environment: Mapping[str, str]) -> Iterator[Terminal]:
    """Start a program in a terminal; end it, with what it started."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env={**environment, "TERM": "xterm-256color"},
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(ours)

"""fsync of Valkey's append-only file every second, by a program beside the server, which need not wait for it.

docs/adr/0078 says why the server does not do it. It imports nothing of the project: it runs as a script for as long as
the server, and must be small.
"""
# alone: runs as a script, beside the server, without the project's imports

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

# Seconds between two looks.
PAUSE = 1.0
# A file as it was seen: which one, how long, written when.
State = tuple[int, int, int]
# macOS has no fdatasync; what it would leave out is not needed to read the data.
_sync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


def flush(folder: Path, known: dict[Path, State], sync: Callable[[int], object] = _sync) -> dict[Path, State]:
    """Have the append-only files in `folder` that are not as they are `known` put on the disk; return how they were.

    Raises OSError.
    """
    found: dict[Path, State] = {}
    for file in folder.glob("*.aof"):
        try:
            descriptor = os.open(file, os.O_RDONLY)
        except FileNotFoundError:  # Rewritten, and gone since it was listed.
            continue
        try:
            # Asked first: what comes in while the disk writes is the next look's.
            status = os.fstat(descriptor)
            found[file] = (status.st_ino, status.st_size, status.st_mtime_ns)
            if found[file] != known.get(file):
                sync(descriptor)
        finally:
            os.close(descriptor)
    return found


def main(folder: Path) -> None:
    """Flush for ever; say what goes wrong, once for as long as it is the same."""
    known: dict[Path, State] = {}
    said = None
    while True:
        wrong = None
        try:
            known = flush(folder, known)
        except OSError as error:
            known, wrong = {}, f"what Valkey writes does not get to the disk: {error}"
        if wrong and wrong != said:
            sys.stdout.write(f"{wrong}\n")
            sys.stdout.flush()
        said = wrong
        time.sleep(PAUSE)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

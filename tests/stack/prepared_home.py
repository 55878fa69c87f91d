"""A home of the product that was prepared once: others begin as copies of it, for set-up takes most of a first start.

The folder is `PREPARED_HOMES` in the environment, of which the run's processes have the same; where there is none,
every home begins empty.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

VARIABLE = "PREPARED_HOMES"
# A home whose environment sets one of these variables begins empty, not as a copy.
_PREPARED_FOR = frozenset({"DATABASE_URL", "GATEWAY_MODE", "SECRET_KEY", "API_KEY_PEPPER", "ENCRYPTION_KEYS"})


def fill(home: Path, environment: Mapping[str, str], prepare: Callable[[Path], object]) -> None:
    """Let an empty home begin as a copy of the one that `prepare` makes, unless the environment asks for another."""
    folder = os.environ.get(VARIABLE)
    if folder is None or environment.keys() & _PREPARED_FOR or (home.exists() and any(home.iterdir())):
        return
    source, ready = Path(folder, "home"), Path(folder, "ready")
    with Path(folder, "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            # An earlier preparation was cut short, as by the time limit of its test.
            shutil.rmtree(source, ignore_errors=True)
            source.mkdir()
            prepare(source)
            ready.touch()
    home.mkdir(exist_ok=True)
    # Files of PostgreSQL may be another user's, and must stay so.
    subprocess.run(["cp", "-a", f"{source}/.", str(home)], check=True)

"""PgBouncer in transaction mode before a PostgreSQL, where it is installed (Debian: `pgbouncer`)."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.stack.product import eventually, free_port

# Debian keeps it where only root's path leads.
PROGRAM = shutil.which("pgbouncer", path=os.pathsep.join([os.environ["PATH"], "/usr/sbin"]))


class PgBouncer:
    """One that runs before the database at `url`; connections to it are as many as clients like.

    `settings` are lines of its own file, beside those that all have.
    """

    def __init__(self, folder: Path, url: str, *settings: str) -> None:
        folder.mkdir(exist_ok=True)
        parts = urlsplit(url)
        host = parts.hostname or parse_qs(parts.query)["host"][0]
        self._port = free_port()
        self.url = f"postgresql://{parts.username}@127.0.0.1:{self._port}{parts.path}"
        self._settings = folder / "pgbouncer.ini"
        self._settings.write_text(
            f"""[databases]
* = host={host} port={parts.port or 5432} user={parts.username}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self._port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 1000
default_pool_size = 20
"""
            + "".join(f"{line}\n" for line in settings)
        )
        self._folder = Path(host)
        for path in (*folder.parents[:2], folder, self._settings):
            path.chmod(0o755)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        assert PROGRAM is not None
        # It refuses to run as root; whose the database's folder is may connect.
        owner = self._folder.owner() if self._folder.is_absolute() else "nobody"
        user = [f"--user={owner}"] if os.geteuid() == 0 else []
        self._process = subprocess.Popen(
            [PROGRAM, "--quiet", *user, str(self._settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        eventually(self._answers)

    def kill(self) -> None:
        """Kill it (SIGKILL), with all connections."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
            self._process = None

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=1):
            return True
        return False


@contextmanager
def pgbouncer(folder: Path, url: str, *settings: str) -> Iterator[PgBouncer]:
    """Run one until the block ends."""
    running = PgBouncer(folder, url, *settings)
    try:
        yield running
    finally:
        running.kill()

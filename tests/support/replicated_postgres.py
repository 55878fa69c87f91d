"""A primary of PostgreSQL with a streaming replica, over TCP, made of the same programs as the embedded one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from gateway_project.configuration import data_directory
from gateway_project.embedded.postgres import Postgres
from tests.stack.product import eventually, free_port

# A replica that stands still keeps its primary waiting for no longer than that; conflicts end reads at once.
_OPTIONS = (
    "listen_addresses=127.0.0.1",
    "wal_level=replica",
    "synchronous_commit=on",
    "max_wal_senders=8",
    "wal_keep_size=256MB",
    "hot_standby=on",
    "max_standby_streaming_delay=0",
    "wal_receiver_status_interval=1",
    "wal_retrieve_retry_interval=200ms",
    "log_min_messages=fatal",
)
# Files of a running primary that a replica makes for itself.
_NOT_COPIED = shutil.ignore_patterns("postmaster.pid", "postmaster.opts", "standby.signal", "00000*", ".s.PGSQL*")


class Server:
    """One of the two; `url` leads to it alone."""

    def __init__(self, folder: Path, *options: str, port: int | None = None) -> None:
        data_directory.create(folder)
        folder.chmod(0o711)
        self.port = port or free_port()
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/gateway"
        self._postgres = Postgres(folder, durable=False, options=(f"port={self.port}", *_OPTIONS, *options))
        self.data = self._postgres.data
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = self._postgres.start(subprocess.DEVNULL)
        eventually(self._answers, patience=60)

    def kill(self) -> None:
        """Kill it (SIGKILL), with all of its processes."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(60)
            self._process = None

    def hang(self) -> None:
        """Stop all of its processes (SIGSTOP)."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on after `hang`."""
        self._signal(signal.SIGCONT)

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """Carry out a statement outside of a transaction; return its rows."""
        with psycopg.connect(self.url, autocommit=True, connect_timeout=10) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def _answers(self) -> bool:
        if not self._postgres.answers():
            return False
        with suppress(psycopg.OperationalError):
            return self.run("SELECT 1") == [(1,)]
        return False

    def _signal(self, kind: signal.Signals) -> None:
        # Each of its processes has a session of its own.
        for pid in _tree(self._process.pid if self._process is not None else 0):
            with suppress(ProcessLookupError):
                os.kill(pid, kind)


class ReplicatedPostgres:
    """A primary and its replica; `url` names both, and means the one that takes writes.

    A `synchronous` primary answers no commit before the replica has it on its disk.
    """

    def __init__(self, *, synchronous: bool = False) -> None:
        # Where the user that root runs it as may pass.
        self.folder = Path(tempfile.mkdtemp(prefix="replicated-"))
        self.folder.chmod(0o711)
        self.primary = Server(self.folder / "primary")
        self.primary.start()
        try:
            self.replica = self._copy()
            self.replica.start()
            eventually(self._streams)
            if synchronous:
                self.primary.run("ALTER SYSTEM SET synchronous_standby_names = '*'")
                self.primary.run("SELECT pg_reload_conf()")
                eventually(lambda: self._state() == ("streaming", "sync"))
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """Both, by one URL."""
        return f"postgresql://postgres@127.0.0.1:{self.primary.port},127.0.0.1:{self.replica.port}/gateway"

    def catch_up(self) -> None:
        """Wait until the replica has all that the primary has."""
        ((written,),) = self.primary.run("SELECT pg_current_wal_lsn()::text")
        eventually(lambda: self.replica.run(f"SELECT pg_last_wal_replay_lsn() >= '{written}'::pg_lsn") == [(True,)])

    def stop_sending(self) -> None:
        """Have the primary send the replica nothing more, as a network does that has just broken."""
        ((sender,),) = self.primary.run("SELECT pid FROM pg_stat_replication")
        os.kill(sender, signal.SIGSTOP)

    def promote(self) -> None:
        """Make the replica a primary, and wait until it takes writes."""
        self.replica.run("SELECT pg_promote()")
        eventually(lambda: self.replica.run("SELECT pg_is_in_recovery()") == [(False,)])

    def fail_over(self) -> float:
        """Kill the primary and promote the replica; return the seconds that it took."""
        began = time.monotonic()
        self.primary.kill()
        self.promote()
        return time.monotonic() - began

    def close(self) -> None:
        """End both, and remove what they kept."""
        for server in (self.primary, getattr(self, "replica", None)):
            if server is not None:
                server.go_on()
                server.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _copy(self) -> Server:
        """Copy the running primary as an operator would without pg_basebackup; return the copy, not started yet."""
        source = self.primary.data
        home = self.folder / "replica"
        target = home / source.relative_to(self.folder / "primary")
        data_directory.create(home)
        with psycopg.connect(self.primary.url, autocommit=True) as connection:
            connection.execute("SELECT pg_backup_start('replica', true)")
            shutil.copytree(source, target, ignore=_NOT_COPIED, dirs_exist_ok=True)
            told = connection.execute("SELECT labelfile FROM pg_backup_stop(false)").fetchone()
        assert told is not None
        (target / "backup_label").write_text(told[0])
        (target / "standby.signal").touch()
        owner = source.stat()
        for path in (target, *target.rglob("*")):
            os.chown(path, owner.st_uid, owner.st_gid)
        target.chmod(0o700)
        origin = f"host=127.0.0.1 port={self.primary.port} user=postgres application_name=replica"
        return Server(home, f"primary_conninfo={origin}")

    def _state(self) -> tuple[Any, ...]:
        rows = self.primary.run("SELECT state, sync_state FROM pg_stat_replication")
        return rows[0] if rows else ("", "")

    def _streams(self) -> bool:
        return self._state()[0] == "streaming"


def _tree(pid: int) -> list[int]:
    """Return a process and its children."""
    found = [pid] if pid else []
    for task in Path(f"/proc/{pid}/task").glob("*") if pid else []:
        with suppress(OSError):
            found += [int(child) for child in (task / "children").read_text().split()]
    return found

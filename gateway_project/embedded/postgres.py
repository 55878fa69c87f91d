"""An embedded PostgreSQL: made on first start, reachable on a unix socket only, never run as root."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO
from urllib.parse import quote

from gateway_project.embedded import programs
from gateway_project.embedded.child_process import SystemUser, socket_folder, spawn, stop_leftover
from gateway_project.embedded.programs import StoreError

_SOCKET = ".s.PGSQL.5432"
_DATABASE = "gateway"
# Users that a machine may have for it; the first that there is.
_OWN_USERS = ("model-gateway", "postgres")
# Settings under which an acknowledged commit survives the death of server and machine, and under which it may not.
_DURABLE = ("fsync=on", "synchronous_commit=on")
_THROW_AWAY = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "wal_level=minimal", "max_wal_senders=0")


class Postgres:
    """One cluster under a home. `start` it, wait until it `answers`, reach it at `url`."""

    name = "postgres"
    title = "PostgreSQL"
    url_variable = "DATABASE_URL"
    stands_for = ("DATABASE_URL",)
    # Disconnects clients and writes a checkpoint; then, at once and with recovery at the next start.
    stop_signal, force_signal = signal.SIGINT, signal.SIGQUIT

    def __init__(self, home: Path, *, durable: bool = True, options: Sequence[str] = ()) -> None:
        """Choose the places. `options` (`name=value`) are settings beside ours, or in place of them.

        Raises StoreError where PostgreSQL cannot be run.
        """
        self._durable, self._options = durable, options
        self.data = _data_folder(home)
        self._user = _user_for(self.data)
        major = self.data / "PG_VERSION"
        self._programs = programs.find_postgres(int(major.read_text()) if major.exists() else None)
        if self._user:
            self._programs = programs.passable_copy(self._programs, self.data)
            if not programs.passable(self.data.parent):
                raise StoreError(
                    f"PostgreSQL refuses to run as root, and as another user it cannot reach its data in "
                    f"{self.data}: open the folders above it (chmod o+x), or move it where others may pass"
                )
        self._sockets = socket_folder(self.data, _SOCKET, home / "run" / "postgres-socket", self._user)
        self.url = f"postgresql://postgres@/{_DATABASE}?host={quote(str(self._sockets), safe='')}"

    def start(self, output: IO[bytes] | int) -> subprocess.Popen[bytes]:
        """Start the server, after making the cluster and ending a leftover server. Raises StoreError, OSError."""
        if not (self.data / "PG_VERSION").exists():
            self._make_cluster()
        stop_leftover(self._pid_file, "postgres", self.data, self.stop_signal)
        settings = (
            "listen_addresses=",
            f"unix_socket_directories={_quoted(self._sockets)}",
            "unix_socket_permissions=0700",
            "max_connections=200",
            "timezone=UTC",
            "log_timezone=UTC",
            *(_DURABLE if self._durable else _THROW_AWAY),
            *self._options,
        )
        return spawn(
            [self._programs.server, "-D", self.data, *(word for setting in settings for word in ("-c", setting))],
            output=output,
            env=_environment(),
            user=self._user,
            orphan_signal=self.stop_signal,
            # A model request makes no query.
            background=True,
        )

    def answers(self) -> bool:
        """Does the running server accept connections? It says so in the last line of its pid file."""
        try:
            return self._pid_file.read_text().splitlines()[7].strip() == "ready"
        except (OSError, IndexError):
            return False

    @property
    def _pid_file(self) -> Path:
        return self.data / "postmaster.pid"

    def _make_cluster(self) -> None:
        """Make the cluster with its one database; an incomplete one never gets the cluster's name."""
        draft = self.data.with_name(f"{self.data.name}.new")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        if self._user:
            os.chown(draft, self._user.uid, self._user.gid)
        # Unicode's rules for upper and lower case, in code point order, whatever locales the machine has.
        options = ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        if self._programs.major < 17:
            options = ["--locale=C.UTF-8"]
        if not self._durable:
            options.append("--no-sync")
        self._run([self._programs.initdb, "-D", draft, "-U", "postgres", "-A", "trust", "-E", "UTF8", *options])
        alone: list[str | Path] = [self._programs.server, "--single", "-c", "exit_on_error=on", "-D", draft, "postgres"]
        self._run(alone, typed=f"CREATE DATABASE {_DATABASE}\n")
        draft.rename(self.data)

    def _run(self, argv: Sequence[str | Path], typed: str = "") -> None:
        """Run one of the programs to its end. Raises StoreError with its words."""
        try:
            done = subprocess.run(
                argv,
                input=typed.encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
                cwd="/",
                env=_environment(),
                user=self._user.uid if self._user else None,
                group=self._user.gid if self._user else None,
                extra_groups=[] if self._user else None,
            )
        except PermissionError as error:
            raise StoreError(f"PostgreSQL cannot be run: {error}; set DATABASE_URL to a running one") from error
        if done.returncode:
            said = done.stdout.decode(errors="replace").strip()
            raise StoreError(f"a new PostgreSQL cluster could not be made in {self.data}:\n{said}")


def _data_folder(home: Path) -> Path:
    """Return where the cluster is or will be: in the home or, if other users cannot get there, where a link says."""
    place = home / "postgres"
    if place.is_symlink():
        if not place.exists():
            raise StoreError(f"PostgreSQL's data are gone: {place} points to {place.readlink()}")
        return place.resolve() / "data"
    if place.exists() or os.geteuid() != 0 or programs.passable(home):
        return place
    programs.ELSEWHERE.mkdir(mode=0o755, parents=True, exist_ok=True)
    elsewhere = Path(tempfile.mkdtemp(prefix="data-", dir=programs.ELSEWHERE))
    elsewhere.chmod(0o711)
    place.symlink_to(elsewhere)
    return elsewhere / "data"


def _user_for(data: Path) -> SystemUser | None:
    """Return whom to run the server as: for root the owner of the data, at first a user of its own; else who we are."""
    owner = data.stat().st_uid if data.exists() else None
    if os.geteuid() != 0:
        if owner not in (None, os.geteuid()):
            raise StoreError(f"PostgreSQL's data in {data} belong to another user (uid {owner}): start as that user")
        return None
    try:
        entry = pwd.getpwuid(owner) if owner else _least_shared()
    except KeyError as error:
        raise StoreError(f"PostgreSQL refuses to run as root: {error}; set DATABASE_URL to a running one") from error
    return SystemUser(entry.pw_uid, entry.pw_gid)


def _least_shared() -> pwd.struct_passwd:
    """Return the least shared user: many services run as the last one. Raises KeyError if there is none."""
    for name in _OWN_USERS:
        with suppress(KeyError):
            return pwd.getpwnam(name)
    return pwd.getpwnam("nobody")


def _quoted(folder: Path) -> str:
    """Return the folder as an element of PostgreSQL's comma-separated lists."""
    return '"' + str(folder).replace('"', '""') + '"'


def _environment() -> dict[str, str]:
    """Return what the programs need and no more: the server may run as a user who must not read our secrets."""
    return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}

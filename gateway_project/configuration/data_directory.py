"""The data directory, GATEWAY_HOME: the one folder for all data of the product on this machine.

It also sets who may read the folder and locks it for one server. Does not import Django: the settings import this
module, and so do commands that run without settings.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
# Whether the product runs from a folder of its own, not as a package among others.
IS_CHECKOUT = (_PACKAGE.parent / "manage.py").is_file()
# Where `Procfile`, `manage.py` and `templates` are: an installed package has them within itself (`pyproject.toml`).
PROJECT = _PACKAGE.parent if IS_CHECKOUT else _PACKAGE / "project"
# How a person starts the server, and runs one of Django's commands: as messages name them.
SERVER_COMMAND = "script/server" if IS_CHECKOUT else "gateway server"
MANAGE_COMMAND = "./manage.py" if IS_CHECKOUT else "gateway manage"


class HomeInUseError(OSError):
    """Another server holds this home."""


def path() -> Path:
    """Return GATEWAY_HOME, by default `.local` in a checkout, else a folder of the user's; it need not exist."""
    return Path(os.environ.get("GATEWAY_HOME") or _default()).expanduser().absolute()


def _default() -> Path:
    if IS_CHECKOUT:
        return PROJECT / ".local"
    # Where programs keep what they want to find again, by the XDG base directory specification.
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state") / "model-gateway"


def create(home: Path) -> None:
    """Make the home and the folders that are for its owner only. Raises OSError.

    The home itself may be passed through but not listed: PostgreSQL does not run as root, so it runs as an unprivileged
    user when root starts the server, and has its data inside.
    """
    if not home.exists():
        home.mkdir(parents=True)
        home.chmod(0o711)
    for name in ("run", "logs"):
        (home / name).mkdir(mode=0o700, exist_ok=True)


@contextmanager
def hold_lock(home: Path) -> Iterator[None]:
    """Hold the home for this process, which must be the only server on it. Raises HomeInUseError.

    The operating system lets go when the process ends, however it ends.
    """
    with (home / "run" / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise HomeInUseError(
                f"a server (process {file.read().strip() or 'unknown'}) already runs on {home}: "
                "stop it, or set GATEWAY_HOME to another folder"
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def find_lock_holder(home: Path) -> int | None:
    """Return the number of the process that holds the home, None when no server runs on it."""
    try:
        with (home / "run" / "lock").open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(file.read())
    except (OSError, ValueError):
        pass
    return None


def write_store_urls(home: Path, urls: Mapping[str, str]) -> None:
    """Tell other processes where this server and its stores are: `database_url`, `redis_url`, `server_url`."""
    record = _record(home)
    draft = record.with_suffix(".new")
    draft.write_text(json.dumps({**urls, "pid": os.getpid()}))
    draft.chmod(0o600)
    draft.replace(record)


def remove_store_urls(home: Path) -> None:
    """Withdraw what `write_store_urls` wrote."""
    _record(home).unlink(missing_ok=True)


def read_store_urls() -> dict[str, str]:
    """Return the URLs of a live server on this home and of the stores that it started, or nothing."""
    try:
        record = json.loads(_record(path()).read_text())
        os.kill(record.pop("pid"), 0)
    except PermissionError:
        pass  # Alive, and another user's.
    except (OSError, ValueError):
        return {}
    return {name: str(url) for name, url in record.items()}


def _record(home: Path) -> Path:
    return home / "run" / "stores.json"

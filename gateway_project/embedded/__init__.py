"""The stores a fresh clone brings along: PostgreSQL and two Valkeys as child processes, on unix sockets only.

Knows which stores the environment leaves to us, and how to run them for as long as a block of code. Must never know
Django, nor what the stores keep.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway_project.configuration import data_directory as homes
from gateway_project.embedded.child_process import stop_child
from gateway_project.embedded.postgres import Postgres
from gateway_project.embedded.programs import StoreError
from gateway_project.embedded.valkey import CacheValkey, Flusher, Valkey

Store = Postgres | Valkey

# Seconds a store may take to start, recovery after a crash included, and to stop before it is made to.
START_PATIENCE, STOP_PATIENCE = 60.0, 20.0


@dataclass(frozen=True)
class Stores:
    """Where the stores are: in the environment's words, or those of the store we started."""

    home: Path
    database_url: str
    redis_url: str
    # Where what organizations grow is kept; the same as `redis_url` where the environment names that one alone.
    cache_url: str


def choose_stores(home: Path, *, durable: bool = True) -> list[Store]:
    """Return the stores that no URL in the environment stands for; none is started yet. Raises StoreError, OSError."""
    # Valkey first: it starts while PostgreSQL makes its cluster.
    kinds: tuple[type[Store], ...] = (Valkey, CacheValkey, Postgres)
    return [kind(home, durable=durable) for kind in kinds if not any(map(os.environ.get, kind.stands_for))]


def flushers(stores: Sequence[Store]) -> list[Flusher]:
    """Return what has to run beside the stores once they answer."""
    return [flusher for store in stores if isinstance(store, Valkey) and (flusher := store.flusher)]


@contextmanager
def running(home: Path, *, durable: bool = True) -> Iterator[Stores]:
    """Run the chosen stores on the home for as long as the block. Raises StoreError, HomeInUseError, OSError.

    Without `durable` nothing is written through to the disk: fast, and gone when the machine is.
    """
    homes.create(home)
    with homes.hold_lock(home), ExitStack() as at_the_end:
        stores = choose_stores(home, durable=durable)
        started: list[tuple[Store, subprocess.Popen[bytes]]] = []
        for store in stores:
            with _log_of(home, store).open("ab") as output:
                process = store.start(output)
            at_the_end.callback(stop_child, process, store.stop_signal, store.force_signal, STOP_PATIENCE)
            started.append((store, process))
        for store, process in started:
            _wait_until_it_answers(home, store, process)
        for flusher in flushers(stores):
            with _log_of(home, flusher).open("ab") as output:
                process = flusher.start(output)
            at_the_end.callback(stop_child, process, flusher.stop_signal, flusher.force_signal, STOP_PATIENCE)
        urls = {store.url_variable: store.url for store in stores}
        homes.write_store_urls(home, {variable.lower(): url for variable, url in urls.items()})
        at_the_end.callback(homes.remove_store_urls, home)
        urls = {**os.environ, **urls}
        redis_url = urls[Valkey.url_variable]
        yield Stores(home, urls[Postgres.url_variable], redis_url, urls.get(CacheValkey.url_variable) or redis_url)


@contextmanager
def throw_away() -> Iterator[Stores]:
    """Run the chosen stores on a home of their own that is gone afterwards. Raises StoreError, OSError."""
    home = Path(tempfile.mkdtemp(prefix="gateway-"))
    home.chmod(0o711)  # As `data_directory.create` does, and for its reason.
    try:
        with running(home, durable=False) as stores:
            yield stores
    finally:
        # What the home keeps elsewhere hangs on links.
        for link in (*home.glob("*"), *home.glob("run/*")):
            if link.is_symlink():
                shutil.rmtree(link.resolve(), ignore_errors=True)
        shutil.rmtree(home, ignore_errors=True)


def _log_of(home: Path, store: Store | Flusher) -> Path:
    return home / "logs" / f"{store.name}.log"


def _wait_until_it_answers(home: Path, store: Store, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_PATIENCE
    while not store.answers():
        if process.poll() is not None or time.monotonic() > deadline:
            said = _log_of(home, store).read_text(errors="replace").splitlines()[-20:]
            raise StoreError("\n".join([f"{store.title} does not start:", *said]))
        time.sleep(0.01)

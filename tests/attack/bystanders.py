"""Ordinary clients beside an attack, and how long they wait: on kept connections to every worker, on new ones, and in
management.

A blocked worker stops accepting, so that new connections land elsewhere and notice nothing: kept ones do. Which worker
holds a connection is looked up in /proc.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from bench.machine import run_at_once
from tests.attack.wire import BYSTANDER, chat, connect, edit, read_answer, request, status_in
from tests.stack.product import PROJECT, Product, free_port

# Seconds after which a bystander gives up.
PATIENCE = 30.0
# Kept connections to each worker, and seconds between two requests of one client.
_EACH, _PAUSE = 2, 0.03


@dataclass
class Waits:
    """The results of one kind of client: milliseconds of each answer, and the requests without an answer."""

    answers: list[float] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)

    @property
    def worst(self) -> float:
        """The longest wait, milliseconds."""
        return max(self.answers, default=0.0)

    @property
    def median(self) -> float:
        """The usual wait, milliseconds."""
        return sorted(self.answers)[len(self.answers) // 2] if self.answers else 0.0


class Bystanders:
    """Clients that send small requests in a loop until they are stopped."""

    def __init__(self, product: Product, token: str, session: str, elsewhere: str = "", *, quiet: bool = False) -> None:
        """Begin to ask; with a server `elsewhere` also for sign-ins and pictures. `quiet` ones ask nothing."""
        self.kept, self.fresh, self.management, self.machine = Waits(), Waits(), Waits(), Waits()
        self.sign_in, self.pictures = Waits(), Waits()
        self._product = product
        self._stopping = threading.Event()
        small = chat(token)
        listing = request("GET", "/organization", token=session)
        asking = [] if quiet else self._asking(small, listing)
        works = [*asking, self._talking_to_itself]
        if elsewhere:
            works += [self._signing_in, self._sending_pictures(token, elsewhere)]
        self._threads = [threading.Thread(target=_undisturbed, args=[work], daemon=True) for work in works]
        for thread in self._threads:
            thread.start()

    def _asking(self, small: bytes, listing: bytes) -> list[Callable[[], None]]:
        return [
            *(self._keeping(sock, small, self.kept) for sock in covering(self._product, _EACH)),
            *(self._keeping(sock, listing, self.management) for sock in covering(self._product, 1)),
            self._coming(small),
        ]

    def stop(self) -> None:
        """Wait for the answers under way, which count as well."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(PATIENCE + 5)

    def _keeping(self, sock: socket.socket, words: bytes, waits: Waits) -> Callable[[], None]:
        def work() -> None:
            own: socket.socket | None = sock
            while not self._stopping.is_set():
                began = time.perf_counter()
                try:
                    own = own or connect(self._product.port, BYSTANDER, PATIENCE)
                    own.sendall(words)
                    _count(waits, read_answer(own))
                except OSError as error:
                    waits.refused["no answer" if isinstance(error, TimeoutError) else "closed"] += 1
                    if own is not None:
                        own.close()
                    own = None
                waits.answers.append((time.perf_counter() - began) * 1000)
                time.sleep(_PAUSE)
            if own is not None:
                own.close()

        return work

    def _coming(self, words: bytes) -> Callable[[], None]:
        def work() -> None:
            while not self._stopping.is_set():
                began = time.perf_counter()
                try:
                    with connect(self._product.port, BYSTANDER, PATIENCE) as sock:
                        sock.sendall(words)
                        _count(self.fresh, read_answer(sock))
                except OSError as error:
                    self.fresh.refused["no answer" if isinstance(error, TimeoutError) else "closed"] += 1
                self.fresh.answers.append((time.perf_counter() - began) * 1000)
                time.sleep(_PAUSE * 2)

        return work

    def _signing_in(self) -> None:
        """Sign in as accounts that do not exist, which takes as long as for one that does."""
        for number in count():
            body = {"email": f"nobody-{number}@example.com", "password": "a quite long password 17"}
            self._ask_anew(request("POST", "/auth/sign-in/email", body), self.sign_in, "401")
            # Below the rate of an address.
            if self._stopping.wait(1.1):
                return

    def _sending_pictures(self, token: str, elsewhere: str) -> Callable[[], None]:
        """Return the work that has pictures fetched by name, where one gets no further than to TLS."""
        words = edit(token, [f"{elsewhere.replace('http:', 'https:')}/cat.png"])

        def work() -> None:
            while not self._stopping.wait(_PAUSE * 5):
                self._ask_anew(words, self.pictures, "400")

        return work

    def _ask_anew(self, words: bytes, waits: Waits, due: str) -> None:
        began = time.perf_counter()
        try:
            with connect(self._product.port, BYSTANDER, PATIENCE) as sock:
                sock.sendall(words)
                _count(waits, read_answer(sock), due)
        except OSError as error:
            waits.refused["no answer" if isinstance(error, TimeoutError) else "closed"] += 1
        waits.answers.append((time.perf_counter() - began) * 1000)

    def _talking_to_itself(self) -> None:
        """Ask a process that does nothing else: what that takes, the machine takes."""
        port = free_port()
        process = subprocess.Popen([sys.executable, "-m", "tests.attack.echo", str(port)], cwd=PROJECT)
        sock: socket.socket | None = None
        try:
            while sock is None and not self._stopping.wait(0.1):
                with suppress(OSError):
                    sock = connect(port, BYSTANDER, PATIENCE)
            while sock is not None and not self._stopping.is_set():
                began = time.perf_counter()
                sock.sendall(b"?")
                sock.recv(1)
                self.machine.answers.append((time.perf_counter() - began) * 1000)
                time.sleep(_PAUSE)
        finally:
            process.kill()
            process.wait(10)


def _count(waits: Waits, answer: bytes, due: str = "200") -> None:
    if (status := status_in(answer)) != due:
        waits.refused[status] += 1


# --- who holds which connection


def _undisturbed(work: Callable[[], None]) -> None:
    """Run a client's work as on a machine of its own: its waits are the product's, none of them for a core here."""
    run_at_once()
    work()


def covering(product: Product, each: int, patience: float = 90.0) -> list[socket.socket]:
    """Return open connections, so many to every worker. Raises TimeoutError when a worker takes none."""
    until, kept, spare = time.monotonic() + patience, list[tuple[int, socket.socket]](), list[socket.socket]()
    while True:
        # A worker that an earlier attack killed has been replaced meanwhile.
        held = Counter(holder for holder, _ in kept)
        missing = [pid for pid in workers_of(product) if held[pid] < each]
        if not missing and held:
            break
        if time.monotonic() > until:
            raise TimeoutError(f"no connection came to some of the workers {missing}")
        holder = None
        with suppress(OSError):
            sock = connect(product.port, BYSTANDER, 5)
            spare.append(sock)
            sock.sendall(request("GET", "/?skip=redis,database"))
            read_answer(sock)
            holder = holder_of(sock, product.port, missing)
        if holder is not None:
            kept.append((holder, spare.pop()))
        if len(spare) > 200:
            # They are kept open so that the busier worker is not chosen again, but not for ever.
            spare.pop(0).close()
    for sock in spare:
        sock.close()
    for _, sock in kept:
        sock.settimeout(PATIENCE)
    return [sock for _, sock in kept]


def workers_of(product: Product) -> list[int]:
    """Return the ids of the web workers; the eldest gunicorn starts the others."""
    return product.processes("gunicorn")[1:]


def holder_of(sock: socket.socket, port: int, pids: list[int]) -> int | None:
    """Return which of the processes holds the other end of a connection."""
    address, number = sock.getsockname()
    theirs = f"{_hex(address)}:{number:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[2] == theirs and words[1].endswith(f":{port:04X}"):
            target = f"socket:[{words[9]}]"
            return next((pid for pid in pids if target in _links(pid)), None)
    return None


def _links(pid: int) -> set[str]:
    found = set()
    with suppress(OSError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.add(os.readlink(path))
    return found


def _hex(address: str) -> str:
    return "".join(f"{int(part):02X}" for part in reversed(address.split(".")))

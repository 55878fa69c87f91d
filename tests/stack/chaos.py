"""A load on a running product, and strikes at its processes while it lasts."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import uuid4

import requests

from tests.stack.product import MONEY_STORE, PROJECT, Product

# Seconds after which an answer that has not moved is one that hangs.
PATIENCE = 30.0
LAST_FRAME = b"data: [DONE]\n\n"


class Door(NamedTuple):
    """A key to ask with, and the model that it asks for."""

    token: str
    model: str


@dataclass
class Heard:
    """The answers that clients got, by the id of their request."""

    # Answered to the end: the cost stated in USD.
    costs: dict[str, Decimal] = field(default_factory=dict)
    # Let in and reserved for (the answer says how the rate stands), but not answered to the end.
    parts: set[str] = field(default_factory=set)
    # Let in while the store was away, and not answered to the end.
    unreserved_parts: set[str] = field(default_factory=set)
    # Failed by the provider, and refused by the gateway with these statuses.
    failed: set[str] = field(default_factory=set)
    refused: dict[str, int] = field(default_factory=dict)
    # Requests without an answer, and those without an answer in time.
    broken: set[str] = field(default_factory=set)
    hung: set[str] = field(default_factory=set)
    slowest: float = 0.0


class Load:
    """Clients that ask, whole and streamed, some of them leaving in the middle, until told to stop."""

    def __init__(self, product: Product, doors: list[Door], clients: int, chance: random.Random) -> None:
        self.heard = Heard()
        self._product = product
        self._stopping = threading.Event()
        seeds = [chance.random() for _ in range(clients)]
        self._threads = [
            threading.Thread(target=self._ask, args=(doors[number % len(doors)], random.Random(seed)))
            for number, seed in enumerate(seeds)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let everybody finish."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(PATIENCE * 3)
            assert not thread.is_alive(), "a client never came back"

    def _ask(self, door: Door, chance: random.Random) -> None:
        while not self._stopping.is_set():
            request_id, began = uuid4().hex, time.monotonic()
            try:
                self._one(door, request_id, chance)
            except requests.Timeout:
                self.heard.hung.add(request_id)
            except requests.RequestException:
                self.heard.broken.add(request_id)
                time.sleep(0.05)
            self.heard.slowest = max(self.heard.slowest, time.monotonic() - began)

    def _one(self, door: Door, request_id: str, chance: random.Random) -> None:
        kind = chance.random()
        stream, leaves, fails = kind < 0.55, kind < 0.1, kind > 0.94
        # The same question twice in a while: a project that keeps answers has some of them.
        script = f"usage={chance.randint(1, 60) * 83},{chance.randint(1, 4) * 59} chunks=4 gap={chance.choice((2, 40))}"
        response = requests.post(
            f"{self._product.url}/v1/chat/completions",
            json={
                "model": door.model,
                "stream": stream,
                "max_tokens": 300,
                "messages": [
                    {"role": "user", "content": f"one two three [[sandbox {'status=500' if fails else script}]]"}
                ],
            },
            headers={"Authorization": f"Bearer {door.token}", "x-request-id": request_id},
            timeout=PATIENCE,
            stream=True,
        )
        with response:
            if response.status_code != 200:
                self._refuse(request_id, response)
            elif stream:
                self._read_stream(request_id, response, leaves=leaves)
            else:
                self._keep(request_id, usage_in(response.content))

    def _refuse(self, request_id: str, response: requests.Response) -> None:
        if response.json()["error"]["type"] in {"upstream_error", "timeout_error"}:
            self.heard.failed.add(request_id)
        else:
            self.heard.refused[request_id] = response.status_code
            time.sleep(0.05)

    def _read_stream(self, request_id: str, response: requests.Response, *, leaves: bool) -> None:
        frames, usage = b"", None
        with contextlib.suppress(requests.exceptions.ChunkedEncodingError, requests.exceptions.ConnectionError):
            for chunk in response.iter_content(None):
                frames += chunk
                if leaves:
                    break
        if frames.endswith(LAST_FRAME):
            usage = usage_in(frames.split(b"\n\n")[-3].removeprefix(b"data: "))
        if usage is not None:
            self._keep(request_id, usage)
        elif "ratelimit-limit" in response.headers:
            self.heard.parts.add(request_id)
        else:
            self.heard.unreserved_parts.add(request_id)

    def _keep(self, request_id: str, usage: dict[str, Any]) -> None:
        self.heard.costs[request_id] = Decimal(usage["cost_usd_total"])


def usage_in(answer: bytes) -> dict[str, Any]:
    """Return what a whole answer, or the chunk of a stream that tells it, says of usage and cost."""
    return dict(json.loads(answer, parse_float=Decimal)["usage"])


# --- strikes

# Processes by the words of their command line; those of a victim that is struck whole are struck together.
VICTIMS: dict[str, tuple[str, ...]] = {
    "web server": ("gunicorn",),
    "web worker": ("gunicorn",),
    "settler": ("manage.py", "settler"),
    "celery worker": ("celery", "worker --pool"),
    "beat": ("celery", "beat --loglevel"),
    "valkey": MONEY_STORE,
    "postgres": ("postgres", "-D"),
    "postgres backend": ("postgres:", "[local]"),
    "postgres, all of it": ("postgres",),
}
# How likely which is killed, and which is stopped for a while.
KILLED = {
    "web server": 1,
    "web worker": 4,
    "settler": 4,
    "celery worker": 2,
    "beat": 1,
    "valkey": 4,
    "postgres": 3,
    "postgres backend": 2,
}
STOPPED = {"valkey": 3, "postgres, all of it": 2, "settler": 2, "web worker": 1, "celery worker": 1}


class Storm:
    """Strikes a random process in a random way every half to two seconds."""

    def __init__(self, product: Product, chance: random.Random) -> None:
        self.strikes: Counter[str] = Counter()
        self._product = product
        self._chance = chance
        self._asleep: list[threading.Timer] = []

    def rage(self, seconds: float) -> None:
        """Strike for so long; return when everything that was stopped goes on again."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(self._chance.uniform(0.5, 2))
            if self._chance.random() < 0.7:
                self._kill(_drawn(self._chance, KILLED))
            else:
                self._stop(_drawn(self._chance, STOPPED), self._chance.uniform(1, 3))
        for timer in self._asleep:
            timer.join()

    def _kill(self, victim: str) -> None:
        pids = pids_of(self._product, victim)
        draw = self._chance.random()
        if pids:
            send_signal([pids[int(draw * len(pids))]], signal.SIGKILL)
        self._took_down(f"{victim} killed", pids)

    def _stop(self, victim: str, seconds: float) -> None:
        pids = pids_of(self._product, victim)
        send_signal(pids, signal.SIGSTOP)
        timer = threading.Timer(seconds, send_signal, (pids, signal.SIGCONT))
        timer.start()
        self._asleep.append(timer)
        self._took_down(f"{victim} stopped", pids)

    def _took_down(self, what: str, pids: list[int]) -> None:
        self.strikes[what if pids else f"{what} in vain"] += 1


def pids_of(product: Product, victim: str) -> list[int]:
    """Return the processes of a victim; none while it is being started again."""
    pids = product.processes(*VICTIMS[victim])
    if victim.startswith("web"):
        # The eldest is the one that starts the others.
        return pids[:1] if victim == "web server" else pids[1:]
    return pids


def _drawn(chance: random.Random, weights: dict[str, int]) -> str:
    return chance.choices(list(weights), list(weights.values()))[0]


def send_signal(pids: list[int], kind: signal.Signals) -> None:
    """Send a signal to processes, those that are gone aside."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, kind)


# --- scheduled work

_SEND = """
import random, time
from gateway_project.celery import app
names = ["logs.roll_up", "logs.blank", "gateway.reconcile", "logs.make_partitions", "billing.recover_payments"]
while True:
    try:
        app.send_task(random.choice(names), expires=20)
    except Exception:
        pass
    time.sleep(0.4)
"""


@contextlib.contextmanager
def scheduled_work(product: Product) -> Iterator[None]:
    """Send tasks for as long as the block, more often than any schedule would."""
    sender = subprocess.Popen(
        [sys.executable, "manage.py", "shell", "-c", _SEND],
        cwd=PROJECT,
        env=product.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield
    sender.kill()
    sender.wait(60)

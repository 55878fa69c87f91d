"""`script/bench observability`: what traces over OTLP, a log sink, and pages that follow the log cost.

For one worker and one settler, by turns: a client's `traceparent` says of each block of requests whether it is traced,
the organization's sink is switched on and off, and a hundred browsers follow the log, or none does. The collector and
the sink's receiver are a fixed upstream that answers whatever it is sent.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import tempfile
import threading
import time
from base64 import b64encode
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import mean, median

import requests

from bench.blocks import Connections, compare
from bench.machine import MEASURED, OTHERS, load, pin, threads_cpu_seconds
from bench.run import recorded
from bench.subjects import Subject, gateway, upstream

_CONNECTIONS, _BLOCK = 32, 300
_TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0"
# Traces that are sent while no requests come, how often that is looked at, and seconds that it takes at most.
_SENT, _SENDINGS, _SENDING = 800, 8, 2.5
_SINK_ROUNDS = 4
# Members who follow the log and their pages each, the requests a second meanwhile, and rounds.
_PEOPLE, _PAGES, _RATE, _WATCH_ROUNDS = 10, 10, 500.0, 4
# Tries to open a stream, one a second.
_FOLLOW_TRIES = 60
_MAKE_MEMBERS = """
import json
from django.utils import timezone
from apps.organizations.credentials.sessions import start_session
from apps.organizations.models import Membership, Organization, User
organization = Organization.objects.get(id="{organization}")
tokens = []
for number in range({people}):
    address = f"watcher-{{number}}@example.com"
    person = User.objects.create(email=address, name="Watcher", email_verified_at=timezone.now())
    Membership.objects.create(user=person, organization=organization, role="admin")
    tokens.append(start_session(person))
print(json.dumps(tokens))
"""


def main() -> None:
    """Measure and show."""
    parser = argparse.ArgumentParser(prog="script/bench observability", description=__doc__)
    parser.add_argument("--rounds", type=int, default=150, help="blocks of each kind")
    parser.add_argument("--seconds", type=float, default=4, help="seconds a measurement of the sink")
    parser.add_argument("what", nargs="?", choices=("traces", "sink", "watchers"), help="only this")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gateway-bench-") as folder, ExitStack() as running:
        fixed: Subject = running.enter_context(upstream())
        receiver: Subject = running.enter_context(upstream())
        pin([*fixed.workers, *receiver.workers], OTHERS)
        address = f"http://127.0.0.1:{receiver.port}"
        settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": address, "GATEWAY_ALLOW_PRIVATE_ADDRESSES": "true"}
        subject: Subject = running.enter_context(gateway(fixed.port, Path(folder), settings=settings))
        assert subject.product is not None
        pin([subject.product.pid], OTHERS)
        pin(subject.workers, MEASURED)
        os.sched_setaffinity(0, OTHERS)
        if chosen.what in {None, "traces"}:
            _show_traces(subject, chosen.rounds)
        if chosen.what in {None, "sink"}:
            _show_sink(subject, f"{address}/rows", chosen.seconds)
        if chosen.what in {None, "watchers"}:
            _show_watchers(subject, chosen.seconds)


def _show_traces(subject: Subject, rounds: int) -> None:
    kinds = {
        name: replace(subject, headers={**subject.headers, "traceparent": f"{_TRACEPARENT}{flags}"}).request("plain")
        for name, flags in (("not traced", 0), ("traced", 1))
    }
    with Connections(subject.port, _CONNECTIONS) as connections:
        found = compare(connections, kinds, lambda: threads_cpu_seconds(subject.workers), rounds, _BLOCK)
        sending = [_sending(subject, connections, kinds[name]) for _ in range(_SENDINGS) for name in kinds]
    base = found["not traced"].median
    traced = found["traced"]
    sent = mean(sending[1::2]) - mean(sending[::2])
    print(f"a request that is not traced: {base:.0f} µs of the worker")
    print(f"its trace: {traced.more:.1f} µs (± {traced.standard_error:.1f}) and {sent:.1f} µs to send it:", end=" ")
    print(f"{(traced.more + sent) / base:+.1%}")


def _sending(subject: Subject, connections: Connections, request: bytes) -> float:
    """Return microseconds for each of some requests that the worker takes after it has answered them."""
    connections.ask(request, _SENT)
    before = threads_cpu_seconds(subject.workers)
    time.sleep(_SENDING)
    return (threads_cpu_seconds(subject.workers) - before) / _SENT * 1e6


def _show_sink(subject: Subject, url: str, seconds: float) -> None:
    assert subject.product is not None
    sink = _register_sink(subject, url)
    settlers = subject.product.processes("settler")
    found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    # The first round is to get warm.
    for number in range(_SINK_ROUNDS + 1):
        for is_on in (True, False) if number % 2 else (False, True):
            _ask_management(subject, "PATCH", f"/log-sinks/{sink}", {"status": "active" if is_on else "inactive"})
            records, settler, worker = recorded(subject), threads_cpu_seconds(settlers), _worker(subject)
            answered = load(subject, "plain", connections=_CONNECTIONS, seconds=seconds)["requests"]
            worker = (_worker(subject) - worker) / answered
            records = recorded(subject) - records
            row = (threads_cpu_seconds(settlers) - settler) / max(records, 1), worker
            found[is_on] += [row] if number else []
    print(f"{'':16}{'settler, µs a record':>28}{'worker, µs a request':>28}")
    for is_on, rows in found.items():
        told = [_median_and_range([seconds * 1e6 for seconds in figures]) for figures in zip(*rows, strict=True)]
        print(f"{'with a sink' if is_on else 'without':16}" + "".join(f"{one:>28}" for one in told))


def _show_watchers(subject: Subject, seconds: float) -> None:
    """Show what pages that follow the log cost the worker at a steady rate, and the rate that it can serve."""
    assert subject.product is not None
    organization = subject.product.demo["organizationId"]
    code = _MAKE_MEMBERS.format(organization=organization, people=_PEOPLE)
    tokens = json.loads(subject.product.manage("shell", "--no-imports", "-c", code))
    steady: dict[bool, list[float]] = {True: [], False: []}
    most: dict[bool, list[float]] = {True: [], False: []}
    events = 0
    # The first round is to get warm.
    for number in range(_WATCH_ROUNDS + 1):
        for is_on in (True, False) if number % 2 else (False, True):
            with Watchers(subject.port, organization, tokens if is_on else ()) as watchers:
                before = _worker(subject)
                row = load(subject, "plain", connections=_CONNECTIONS, seconds=seconds, rate=_RATE)
                took = (_worker(subject) - before) / row["requests"]
                best = load(subject, "plain", connections=_CONNECTIONS, seconds=seconds)["per_second"]
            events += watchers.events
            if number:
                steady[is_on].append(took * 1e6)
                most[is_on].append(best)
    print(f"{'':16}{f'worker at {_RATE:.0f}/s, µs a request':>36}{'requests a second at most':>36}")
    for is_on, word in ((True, f"{_PEOPLE * _PAGES} pages"), (False, "none")):
        print(f"{word:16}" + "".join(f"{_median_and_range(one[is_on]):>36}" for one in (steady, most)))
    print(f"events that the pages received: {events}")


class Watchers:
    """Browsers that follow an organization's log, each on connections of its own; a thread reads what they receive."""

    def __init__(self, port: int, organization: str, tokens: Sequence[str]) -> None:
        self.events = 0
        self._selector = selectors.DefaultSelector()
        self._ended = threading.Event()
        for token in tokens:
            for _ in range(_PAGES):
                sock = _follow(port, organization, token)
                self._selector.register(sock, selectors.EVENT_READ, sock)
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> Watchers:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            key.data.close()
        self._selector.close()

    def _read(self) -> None:
        while not self._ended.is_set():
            for key, _ in self._selector.select(0.1):
                piece: bytes = key.data.recv(65_536)
                self.events += piece.count(b"event: requests")
            time.sleep(0.05)


def _follow(port: int, organization: str, token: str) -> socket.socket:
    """Return a connection on which a page's stream has begun. Raises ConnectionError if it is refused."""
    for _ in range(_FOLLOW_TRIES):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.sendall(
            f"GET /app/o/{organization}/logs/live HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            f"Cookie: gateway-session={token}\r\nAccept: text/event-stream\r\n\r\n".encode()
        )
        head = sock.recv(65_536)
        if head.startswith(b"HTTP/1.1 200"):
            return sock
        sock.close()
        # A stream keeps its place until the server next writes to it.
        time.sleep(1)
    raise ConnectionError(head[:300].decode(errors="replace"))


def _median_and_range(figures: list[float]) -> str:
    return f"{median(figures):.1f} ({min(figures):.0f} to {max(figures):.0f})"


def _worker(subject: Subject) -> float:
    return threads_cpu_seconds(subject.workers)


def _register_sink(subject: Subject, url: str) -> str:
    """Return the id of a new sink of the organization."""
    assert subject.product is not None
    fields = {
        "organizationId": subject.product.demo["organizationId"],
        "name": "bench",
        "kind": "webhook",
        "url": url,
        "secret": f"whsec_{b64encode(bytes(32)).decode()}",
    }
    told = _ask_management(subject, "POST", "/log-sinks", fields)
    return str(told.json()["logSink"]["id"])


def _ask_management(subject: Subject, method: str, path: str, fields: dict[str, str]) -> requests.Response:
    assert subject.product is not None
    headers = {"Authorization": f"Bearer {subject.product.demo['sessionToken']}"}
    answer = requests.request(method, f"{subject.product.url}{path}", json=fields, headers=headers, timeout=30)
    assert answer.ok, answer.text
    return answer


if __name__ == "__main__":
    main()

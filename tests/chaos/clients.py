"""Clients of several organizations and formats, whole and streamed, that ask for as long as a fault lasts.

Keeps every answer for the scorecard.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import requests

from tests.stack.chaos import PATIENCE, Door, Load, usage_in
from tests.stack.product import Product

PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages"}
# How many answers one after the other tell that all is well again, and seconds between two of them.
_WELL, _PAUSE = 8, 0.1


class Way(NamedTuple):
    """A key and a model, and how they are asked. A `poor` key may be refused for lack of credits."""

    door: Door
    route: str = "chat"
    poor: bool = False


@dataclass
class Seen:
    """Facts about answers that `Heard` does not have."""

    asked: set[str] = field(default_factory=set)
    # Complete answers of a format that does not tell what they cost.
    complete: set[str] = field(default_factory=set)
    # Refusals by status, of those who had money; and how many 503 and 429 did not say when to come again.
    refused: Counter[int] = field(default_factory=Counter)
    wordless: int = 0
    # Seconds: the longest that a refusal told a client to stay away.
    longest_away: float = 0.0
    # Questions of clients that ask again: those that were answered or refused for good, and those that were given up.
    held: int = 0
    given_up: int = 0
    # When each probe was answered well or not, monotonic.
    probes: list[tuple[float, bool]] = field(default_factory=list)


class Clients(Load):
    """Clients that can be held back, and one that probes."""

    def __init__(self, product: Product, ways: list[Way], clients: int, chance: random.Random) -> None:
        self.seen = Seen()
        self._ways = {way.door.token + way.route: way for way in ways}
        self._going = threading.Event()
        self._going.set()
        self._busy = 0
        self._lock = threading.Lock()
        # A route travels in the model's place of a door.
        doors = [Door(way.door.token, f"{way.route} {way.door.model}") for way in ways]
        self._probe_way = ways[0]
        super().__init__(product, doors, clients, chance)
        self._prober = threading.Thread(target=self._probe)
        self._prober.start()

    def stop(self) -> None:
        """Let everybody finish."""
        self._going.set()
        super().stop()
        self._prober.join(PATIENCE * 2)

    def pause(self) -> None:
        """Hold everybody back, and wait for the answers under way."""
        self._going.clear()
        until = time.monotonic() + PATIENCE
        while self._busy and time.monotonic() < until:
            time.sleep(0.05)

    def go_on(self) -> None:
        """Let everybody ask again."""
        self._going.set()

    def recovered_at(self, since: float) -> float | None:
        """Return when, from a moment on, all was well and stayed so for a while; None as long as it is not."""
        run: list[float] = []
        for at, well in self.seen.probes:
            if at >= since:
                run = [*run, at] if well else []
                if len(run) >= _WELL:
                    return run[0]
        return None

    def _one(self, door: Door, request_id: str, chance: random.Random) -> None:
        self._going.wait()
        route = door.model.partition(" ")[0]
        way = self._ways[door.token + route]
        kind = chance.random()
        stream, leaves, fails = kind < 0.5, kind < 0.08, kind > 0.95
        script = f"usage={chance.randint(1, 60) * 83},{chance.randint(1, 4) * 59} chunks=4 gap={chance.choice((2, 40))}"
        if way.poor:
            # Within its reservation: no organization may be charged more than was reserved.
            script = "words=100 chunks=4 gap=2"
        content = f"one two three [[sandbox {'status=500' if fails else script}]]"
        self.seen.asked.add(request_id)
        with self._lock:
            self._busy += 1
        try:
            self._ask_for(way, request_id, content, stream=stream, leaves=leaves)
        finally:
            with self._lock:
                self._busy -= 1

    def _ask_for(self, way: Way, request_id: str, content: str, *, stream: bool, leaves: bool) -> None:
        door, body = way.door, {"max_tokens": 300, "messages": [{"role": "user", "content": content}], "stream": stream}
        with requests.post(
            self._product.url + PATHS[way.route],
            json={"model": door.model, **body},
            headers={"Authorization": f"Bearer {door.token}", "x-request-id": request_id},
            timeout=PATIENCE,
            stream=True,
        ) as response:
            if response.status_code != 200:
                self._take_refusal(way, request_id, response)
            elif way.route == "messages":
                self._read_message(request_id, response, stream=stream, leaves=leaves)
            elif stream:
                self._read_stream(request_id, response, leaves=leaves)
            else:
                self._keep_whole(request_id, response)

    def _keep_whole(self, request_id: str, response: requests.Response) -> None:
        self._keep(request_id, usage_in(response.content))

    def _read_message(self, request_id: str, response: requests.Response, *, stream: bool, leaves: bool) -> None:
        data = b""
        try:
            for chunk in response.iter_content(None):
                data += chunk
                if leaves and stream:
                    break
        except (requests.exceptions.ChunkedEncodingError, requests.exceptions.ConnectionError):
            if not stream:
                raise
        if not stream or b"event: message_stop" in data:
            self.seen.complete.add(request_id)
        elif "ratelimit-limit" in response.headers:
            self.heard.parts.add(request_id)
        else:
            self.heard.unreserved_parts.add(request_id)

    def _take_refusal(self, way: Way, request_id: str, response: requests.Response) -> None:
        status, after = response.status_code, response.headers.get("retry-after")
        if status in {502, 504} or response.headers.get("x-upstream-status") or self._is_upstreams(response):
            self.heard.failed.add(request_id)
            return
        self.heard.refused[request_id] = status
        if not (way.poor and status == 402):
            self.seen.refused[status] += 1
        if status in {429, 503}:
            self.seen.wordless += after is None
            self.seen.longest_away = max(self.seen.longest_away, float(after or 0))
        time.sleep(0.05)

    def _is_upstreams(self, response: requests.Response) -> bool:
        error: Any = response.json().get("error")
        return isinstance(error, dict) and error.get("type") in {"upstream_error", "timeout_error"}

    def _probe(self) -> None:
        """Ask small things again and again, to see when all is well."""
        number = 0
        while not self._stopping.is_set():
            self._going.wait()
            number += 1
            request_id = f"probe-{id(self)}-{number}"
            self.seen.asked.add(request_id)
            began, well = time.monotonic(), False
            try:
                self._ask_for(self._probe_way, request_id, "probe", stream=False, leaves=False)
                well = request_id in self.heard.costs
            except requests.Timeout:
                self.heard.hung.add(request_id)
            except requests.RequestException:
                self.heard.broken.add(request_id)
            self.seen.probes.append((began, well))
            time.sleep(_PAUSE)

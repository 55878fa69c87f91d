"""Journal: requests to the sandbox and how each ended, in memory and bounded, for tests to read.

Credentials are kept as a digest's beginning and their last four characters.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal

import msgspec

Outcome = Literal["answered", "cut", "reset", "client_closed"]

MAX_ENTRIES = 1_000
MAX_BODY = 1 << 20
"""Bytes kept of one request body."""
MAX_BODIES = 64 << 20
"""Bytes kept of all bodies together; the oldest entries make room."""
MAX_TAGS = 10_000

_SECRETS = ("authorization", "x-api-key", "x-key", "api-key", "x-goog-api-key", "cookie")


@dataclass(slots=True)
class JournalEntry:
    """One request; `outcome` is None until it is over.

    Times are Unix seconds; `sent` counts the bytes of the response, head included.
    """

    tag: str
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    model: str | None = None
    streamed: bool = False
    status: int | None = None
    outcome: Outcome | None = None
    sent: int = 0
    started: float = field(default_factory=time.time)
    ended: float | None = None

    def end(self, outcome: Outcome, *, status: int | None, sent: int) -> None:
        """Note how and when it ended, the status (None if the head was never sent) and the bytes sent."""
        self.outcome, self.status, self.sent = outcome, status, sent
        self.ended = time.time()

    def shown(self) -> dict[str, Any]:
        """Return the entry as the journal's readers see it: `body` as JSON where it is JSON, else as text."""
        try:
            body = msgspec.json.decode(self.body)
        except msgspec.DecodeError:
            body = self.body.decode(errors="replace")
        return {
            "tag": self.tag,
            "method": self.method,
            "path": self.path,
            "headers": self.headers,
            "body": body,
            "model": self.model,
            "stream": self.streamed,
            "status": self.status,
            "outcome": self.outcome,
            "bytesSent": self.sent,
            "startedAt": self.started,
            "endedAt": self.ended,
        }


class Journal:
    """The latest requests, and how often each tag came by."""

    def __init__(self) -> None:
        self._entries: deque[JournalEntry] = deque()
        self._kept = 0
        self._turns: OrderedDict[str, int] = OrderedDict()

    def open(self, tag: str, method: str, path: str, headers: Mapping[str, str], body: bytes) -> JournalEntry:
        """Begin an entry; it is filled in as the request goes on."""
        shown = dict(headers)
        for name in _SECRETS:
            if name in shown:
                shown[name] = masked(shown[name])
        return self.add(JournalEntry(tag, method, path, shown, body[:MAX_BODY]))

    def add(self, entry: JournalEntry) -> JournalEntry:
        """Keep an entry."""
        self._entries.append(entry)
        self._kept += len(entry.body)
        while len(self._entries) > MAX_ENTRIES or self._kept > MAX_BODIES:
            self._kept -= len(self._entries.popleft().body)
        return entry

    def turn(self, tag: str) -> int:
        """Count a request of this tag and return its number, from 1."""
        turn = self._turns.pop(tag, 0) + 1
        self._turns[tag] = turn
        if len(self._turns) > MAX_TAGS:
            self._turns.popitem(last=False)
        return turn

    def entries(self, tag: str | None = None) -> list[JournalEntry]:
        """Return the entries of a tag, or all of them, oldest first."""
        return [entry for entry in self._entries if tag is None or entry.tag == tag]

    def clear(self, tag: str | None = None) -> int:
        """Forget a tag and its count, or everything; return how many entries that were."""
        gone = len(self._entries)
        self._entries = deque(entry for entry in self._entries if tag is not None and entry.tag != tag)
        self._kept = sum(len(entry.body) for entry in self._entries)
        if tag is None:
            self._turns.clear()
        else:
            self._turns.pop(tag, None)
        return gone - len(self._entries)


def masked(secret: str) -> str:
    """Return a credential as it may be kept: `Bearer sha256:<12 hex digits>...<last four>`."""
    scheme, space, token = secret.rpartition(" ")
    return f"{scheme}{space}sha256:{sha256(token.encode()).hexdigest()[:12]}...{token[-4:]}"

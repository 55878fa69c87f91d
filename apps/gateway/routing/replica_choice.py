"""Replica choice: which of the addresses of an organization's own server a request goes to.

Requests with the same beginning go to the same replica, so that its prefix cache is hit, by rendezvous hashing: when a
replica comes or goes, only its own share moves. A replica with more than its share of the load passes a request on to
the least busy one (consistent hashing with bounded loads). Each replica has a circuit breaker.

The load is what the server's own metrics say, where it offers them, else the requests of all processes that share
their counts (`upstream/replica_watch.py`); a process's own count is exact, those of others are seconds old.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final
from uuid import UUID

import structlog
from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, Text
from apps.gateway.canonical.events import Event
from apps.gateway.failures import StaleConnection, UpstreamFailure
from apps.gateway.routing.candidate import Candidate
from apps.gateway.routing.ranking import Ranking, RequestProfile, rendezvous_score
from apps.keys.own_models import ServerReplica

log = structlog.get_logger(__name__)

# The load that a replica may have, as a multiple of the mean (Mirrokni et al.; KubeAI and others use it as well).
LOAD_FACTOR: Final = 1.25
# Characters of the system prompt and of the first message that decide where a conversation goes.
HEAD: Final = 1_000
# Failures in a row that open a circuit: one connection that is refused or breaks, or so many answers of 5xx or
# timeouts. Seconds until an open circuit lets one request through; doubles with each that fails.
OPEN_AFTER: Final = 3
FIRST_PAUSE, MAX_PAUSE = 1.0, 30.0
# Health checks that fail in a row until a replica counts as down.
DOWN_AFTER: Final = 2
# Seconds after its last request for which a replica is watched; replicas of a process.
WATCHED_FOR, MAX_WATCHED = 120.0, 512


class ReplicaHealth:
    """A replica as this process knows it: its load, its circuit and its health."""

    __slots__ = (
        *("failed_checks", "failures", "in_flight", "metrics_at", "open_until", "others", "pause", "reported"),
        *("reported_own", "running", "used_at", "waiting"),
    )

    def __init__(self) -> None:
        self.in_flight = 0
        self.used_at = time.monotonic()
        # Requests of other processes.
        self.others = 0
        # The load that its server's metrics stated, None without any, and this process's own part of it then.
        self.reported: int | None = None
        self.reported_own = 0
        self.running: int | None = None
        self.waiting: int | None = None
        # When it is asked for metrics next: a server without any is asked seldom.
        self.metrics_at = 0.0
        self.failures = self.failed_checks = 0
        self.open_until: float | None = None
        self.pause = FIRST_PAUSE

    @property
    def load(self) -> int:
        """Its requests under way, as far as this process knows."""
        if self.reported is not None:
            return max(self.in_flight, self.reported + self.in_flight - self.reported_own)
        return self.in_flight + self.others

    @property
    def is_up(self) -> bool:
        """Whether its health checks pass and its circuit is closed."""
        return self.open_until is None and self.failed_checks < DOWN_AFTER

    def may_be_asked(self, now: float) -> bool:
        """Return whether it is up, or its open circuit is due for one request."""
        return self.failed_checks < DOWN_AFTER and (self.open_until is None or now >= self.open_until)

    def record_success(self) -> None:
        """Close its circuit: a request was answered."""
        self.failures, self.open_until, self.pause = 0, None, FIRST_PAUSE

    def record_failure(self, *, certain: bool) -> None:
        """Count a failed request; `certain` where the connection was refused or broke."""
        self.failures += 1
        if self.open_until is not None:
            self.pause = min(self.pause * 2, MAX_PAUSE)
        elif not certain and self.failures < OPEN_AFTER:
            return
        self.open_until = time.monotonic() + self.pause

    def record_check(self, *, passed: bool) -> None:
        """Count a health check."""
        self.failed_checks = 0 if passed else self.failed_checks + 1


# Tasks whose prompts a server keeps in a prefix cache. Statuses of a server that is busy.
_WITH_PREFIX: Final = frozenset({"chat", "completions"})
_BUSY: Final = frozenset({503, 529})

_Key = tuple[UUID, str]
_known: dict[_Key, ReplicaHealth] = {}


def health_of(candidate: Candidate) -> ReplicaHealth:
    """Return what this process knows of a candidate's replica."""
    own = candidate.credential.own
    if own is None:
        raise TypeError("The candidate has no replica")
    return find_health(own.id, _replica_of(candidate))


def find_health(provider_key_id: UUID, replica: ServerReplica) -> ReplicaHealth:
    """Return what this process knows of a replica."""
    key = (provider_key_id, replica.url)
    health = _known.get(key)
    if health is None:
        if len(_known) >= MAX_WATCHED:
            for unused in [one for one, known in _known.items() if not known.in_flight] or list(_known)[:1]:
                del _known[unused]
        health = _known[key] = ReplicaHealth()
    return health


def is_in_use(provider_key_id: UUID, replica: ServerReplica) -> bool:
    """Return whether a replica was asked lately, or is."""
    health = _known.get((provider_key_id, replica.url))
    return health is not None and (health.in_flight > 0 or time.monotonic() - health.used_at < WATCHED_FOR)


def forget_all() -> None:
    """Forget all replicas, as at the start."""
    _known.clear()


def arrange(ranking: Ranking, chat: Chat, profile: RequestProfile) -> Ranking:
    """Return a ranking whose candidates with replicas are in the order in which the request prefers them: first the
    replica that its beginning belongs to; with the choice as it stands now, explained.

    `choose` makes the choice when the request is sent.
    """
    key, affinity = _affinity_of(chat, profile)
    ordered, choices = list(ranking.candidates), []
    for mapping in dict.fromkeys(one.mapping for one in ordered if one.credential.replica is not None):
        places = [at for at, one in enumerate(ordered) if one.mapping == mapping]
        group = sorted((ordered[at] for at in places), key=lambda one: -rendezvous_score(key, _replica_of(one).name))
        for at, one in zip(places, group, strict=True):
            ordered[at] = one
        at, reason = _pick(group, by_load=affinity is None)
        choices.append(
            {
                "providerId": group[0].provider_id,
                "selected": _replica_of(group[at]).name,
                "reason": reason,
                "affinity": affinity,
                "replicas": [_explain(one) for one in group],
            }
        )
    return replace(ranking, candidates=tuple(ordered), explanation={**ranking.explanation, "replicaChoices": choices})


def choose(first: Candidate, queue: deque[Candidate], chat: Chat) -> Candidate:
    """Return the replica to ask now: `first`, or another one of the same server in the queue, in which `first` takes
    its place."""
    group = [first, *(one for one in queue if one.mapping == first.mapping)]
    at, _ = _pick(group, by_load=not _has_beginning(chat))
    chosen = group[at]
    if chosen is not first:
        queue[queue.index(chosen)] = first
    health = health_of(chosen)
    if health.open_until is not None:
        # One request goes through; others follow when it was answered, or after another pause.
        health.open_until = time.monotonic() + health.pause
    health.used_at = time.monotonic()
    return chosen


def count_in_flight(candidate: Candidate, answer: Iterable[Event]) -> Generator[Event, None, None]:
    """Yield an answer of a replica, which counts as under way until it ends."""
    health = health_of(candidate)
    health.in_flight += 1
    try:
        yield from answer
    finally:
        health.in_flight -= 1


def record_failure(candidate: Candidate, failure: UpstreamFailure) -> None:
    """Count a failed request of a replica, unless the request or the credential is to blame, or the server is busy."""
    if isinstance(failure, StaleConnection):
        return
    health, broke = health_of(candidate), failure.error_type == "network" and failure.status is None
    if broke or failure.error_type == "timeout" or ((failure.status or 0) >= 500 and failure.status not in _BUSY):
        was_open = health.open_until is not None
        health.record_failure(certain=broke)
        if health.open_until is not None and not was_open:
            log.warning("replica.opened", provider=candidate.provider_id, replica=_replica_of(candidate).name)


def _pick(group: Sequence[Candidate], *, by_load: bool) -> tuple[int, str]:
    """Return the position of the replica to ask, and the reason. The group is in the order that the request prefers."""
    now = time.monotonic()
    loads = {at: health_of(one).load for at, one in enumerate(group)}
    usable = [at for at, one in enumerate(group) if health_of(one).may_be_asked(now)]
    if not usable:
        return min(loads, key=lambda at: (loads[at], at)), "none-up"
    home = usable[0]
    busiest = math.ceil(LOAD_FACTOR * (sum(loads[at] for at in usable) + 1) / len(usable))
    if not by_load and loads[home] < busiest:
        return home, "prefix-affinity"
    return min(usable, key=lambda at: (loads[at], at)), "least-busy" if by_load else "overflow"


def _affinity_of(chat: Chat, profile: RequestProfile) -> tuple[str, str | None]:
    """Return what decides where a request goes, and its kind: its session, its beginning, or nothing of it."""
    if not _has_beginning(chat):
        return str(profile.random_draw), None
    if profile.session is not None:
        return profile.session, "session"
    beginning = "\0".join(_beginning_of(chat)).encode("utf-8", "replace")
    return blake2b(beginning, digest_size=16).hexdigest(), "prompt"


def _has_beginning(chat: Chat) -> bool:
    return chat.task in _WITH_PREFIX


def _beginning_of(chat: Chat) -> Iterable[str]:
    """Yield the beginning of the system prompt and of the first message behind it."""
    for message in chat.messages:
        text, left = "", HEAD
        for part in message.parts:
            if type(part) is Text and left > 0:
                text += part.text[:left]
                left = HEAD - len(text)
        yield text
        if message.role != "system":
            return


def _replica_of(candidate: Candidate) -> ServerReplica:
    replica = candidate.credential.replica
    if replica is None:
        raise TypeError("The candidate has no replica")
    return replica


def _explain(candidate: Candidate) -> dict[str, Any]:
    health = health_of(candidate)
    state = "up" if health.is_up else "circuit-open" if health.open_until is not None else "down"
    return {"name": _replica_of(candidate).name, "state": state, "load": health.load}

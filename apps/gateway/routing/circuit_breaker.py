"""Circuit breaker: take a model at a provider out of routing while it keeps failing, as all workers together see it.

A worker counts outcomes and, once a second, adds them to Valkey and reads what the others added; requests read this
process's copy and never wait. The circuit of a mapping (`provider/model`) that keeps failing opens, and closes when a
single probe request succeeds. The same counts give each mapping's statistics of the last five minutes: uptime, time to
the first token, and throughput (`ProviderStats`).

A request that another provider answered was valid, so the provider that failed it before is to blame; a broken
connection is always the provider's failure. Failures without such proof count when more than one tenant has them, and
only a few a minute of each, so a single tenant's bad requests do not take a provider away from the others; the rest
count in the public uptime, and open no circuit.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID

import gevent
import msgspec
import structlog
from redis.exceptions import RedisError

from apps.gateway.access.credentials import API_KEYS
from apps.gateway.failures import UpstreamFailure
from apps.gateway.routing.candidate import Candidate
from apps.kernel.valkey.redis import client

log = structlog.get_logger(__name__)

# Upper bounds in milliseconds of the classes that times to the first token are counted in; the last has none.
_LATENCY_BOUNDS = (
    50,
    75,
    100,
    150,
    200,
    300,
    400,
    600,
    800,
    1200,
    1600,
    2400,
    3200,
    5000,
    8000,
    12_000,
    20_000,
    40_000,
    60_000,
)
# Fewer answers than this say nothing about how late is late.
_ENOUGH_FOR_P95 = 20


class ProviderStats(msgspec.Struct, frozen=True, kw_only=True):
    """The last five minutes. `uptime` in percent (100 with no traffic), `latency` and `p95_latency` in milliseconds to
    the first token (average, 95th percentile), `throughput` in tokens per second; None where nothing is known.

    `fresh` is how many of the requests were in the last half minute. `open`: it keeps failing and gets no requests, but
    for one when `probe_due`.
    """

    requests: int = 0
    fresh_requests: int = 0
    uptime: float = 100.0
    latency: float | None = None
    throughput: float | None = None
    p95_latency: float | None = None
    open: bool = False
    probe_due: bool = False


NO_TRAFFIC = ProviderStats()


class OutcomeCounts(msgspec.Struct):
    """Outcomes of calls of a mapping in some stretch of time. Times are milliseconds."""

    succeeded: int = 0
    failed: int = 0
    # Failures that only one tenant saw, and that its requests may have caused: they count in the uptime, no further.
    unproven: int = 0
    first_tokens: int = 0
    first_token_ms: int = 0
    tokens: int = 0
    writing_ms: int = 0
    steps: list[int] = msgspec.field(default_factory=lambda: [0] * (len(_LATENCY_BOUNDS) + 1))

    @property
    def total(self) -> int:
        """How many requests ended there, well or not."""
        return self.succeeded + self.failed + self.unproven

    def add_success(self, first_token_ms: int | None, tokens: int, seconds: float) -> None:
        """Count an answer."""
        self.succeeded += 1
        if first_token_ms is not None:
            self.first_tokens += 1
            self.first_token_ms += first_token_ms
            self.steps[bisect_left(_LATENCY_BOUNDS, first_token_ms)] += 1
        if tokens and seconds > 0:
            self.tokens += tokens
            self.writing_ms += max(round(seconds * 1000), 1)

    def add(self, other: OutcomeCounts) -> None:
        """Add the outcomes of another process, or of another time."""
        for name in ("succeeded", "failed", "unproven", "first_tokens", "first_token_ms", "tokens", "writing_ms"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.steps = [one + more for one, more in zip(self.steps, other.steps, strict=True)]

    def nonzero_fields(self) -> Iterator[tuple[str, int]]:
        """Yield each count that is not 0 by its short name, as the store keeps it."""
        for name, short in _SHORT.items():
            if number := getattr(self, name):
                yield short, number
        for step, number in enumerate(self.steps):
            if number:
                yield str(step), number

    def add_field(self, short: str, number: int) -> None:
        """Add a count by its short name; unknown names, of another version, are ignored."""
        if short in _LONG:
            setattr(self, _LONG[short], getattr(self, _LONG[short]) + number)
        elif short.isdigit() and int(short) < len(self.steps):
            self.steps[int(short)] += number


_SHORT = {
    "succeeded": "ok",
    "failed": "no",
    "unproven": "un",
    "first_tokens": "ft",
    "first_token_ms": "ftms",
    "tokens": "tk",
    "writing_ms": "tkms",
}
_LONG = {short: name for name, short in _SHORT.items()}


def compute_stats(counts: OutcomeCounts, fresh: int = 0) -> ProviderStats:
    """Return the statistics of counts."""
    asked = counts.total
    return ProviderStats(
        requests=asked,
        fresh_requests=fresh,
        uptime=100.0 * counts.succeeded / asked if asked else 100.0,
        latency=counts.first_token_ms / counts.first_tokens if counts.first_tokens else None,
        throughput=counts.tokens / counts.writing_ms * 1000 if counts.writing_ms else None,
        p95_latency=_p95(counts.steps),
    )


def _p95(steps: list[int]) -> float | None:
    """Return the upper bound of the class that the 95th percentile falls into."""
    total = sum(steps)
    if total < _ENOUGH_FOR_P95:
        return None
    seen = 0
    for step, number in enumerate(steps[:-1]):
        seen += number
        if seen >= 0.95 * total:
            return float(_LATENCY_BOUNDS[step])
    return float(_LATENCY_BOUNDS[-1])


# Seconds: how far back figures count, how finely they age, how long they are fresh, how often workers sync.
WINDOW_SECONDS, BUCKET_SECONDS, FRESH_SECONDS, SYNC_SECONDS = 300, 10, 30, 1.0
# A circuit opens when so many attempts failed one after the other, as one worker saw it, or when within the last two
# buckets so many failed, as all saw it, and they are so large a share.
OPEN_AFTER, OPEN_SHARE = 5, 0.5
# Seconds until an open circuit lets one request of each worker through: doubles with each that fails.
FIRST_PROBE_PAUSE, MAX_PROBE_PAUSE = 5.0, 20.0
CIRCUITS_KEY = "circuits"
# Providers of tenants' own are not scored: name and model are whatever they write, any number of them, and two tenants
# who use the same name would open each other's circuits.
_UNSCORED = "custom:"


def is_scored(mapping: str) -> bool:
    """Return whether outcomes of a mapping are counted: it is not of a tenant's own provider."""
    return not mapping.startswith(_UNSCORED)


class OpenCircuit(msgspec.Struct):
    """An open circuit: when (Unix seconds) it may be tried next, and after how long that is."""

    next_probe: float
    pause: float

    def is_due(self, now: float) -> bool:
        """Whether it may be tried; also where that is farther off than any pause, for then the clock was set back."""
        return not now < self.next_probe <= now + MAX_PROBE_PAUSE


@dataclass(slots=True)
class CircuitBreakers:
    """All circuits and counts as this process knows them, and what it has not yet shared. Keys are `provider/model`."""

    _unsent: dict[str, OutcomeCounts] = field(default_factory=lambda: defaultdict(OutcomeCounts))
    _buckets: dict[int, dict[str, OutcomeCounts]] = field(default_factory=dict)
    _circuits: dict[str, OpenCircuit] = field(default_factory=dict)
    _closed: set[str] = field(default_factory=set)
    _changed: set[str] = field(default_factory=set)
    _stats: dict[str, ProviderStats] = field(default_factory=dict)
    # Mappings whose circuit has just closed, and the outcomes of each since; older failures are forgiven.
    _forgiven: dict[str, tuple[float, OutcomeCounts]] = field(default_factory=dict)
    # Failures since the last success.
    _consecutive_failures: dict[str, int] = field(default_factory=dict)

    def stats(self, mapping: str) -> ProviderStats:
        """Return a mapping's statistics and whether its circuit is open; one without traffic counts as up."""
        known = self._stats.get(mapping, NO_TRAFFIC)
        circuit = self._circuits.get(mapping)
        if circuit is None:
            return known
        return msgspec.structs.replace(known, open=True, probe_due=circuit.is_due(time.time()))

    def mappings(self) -> list[str]:
        """Return the mappings that anything is known of: those asked lately, and those whose circuit is open."""
        return sorted(self._stats.keys() | self._circuits.keys())

    def record_success(self, mapping: str, *, first_token_ms: int | None, tokens: int, seconds: float) -> None:
        """Count an answer. `first_token_ms` is None for plain answers; speed is `tokens` in `seconds` of writing."""
        if mapping.startswith(_UNSCORED):
            return
        self._unsent[mapping].add_success(first_token_ms, tokens, seconds)
        self._consecutive_failures.pop(mapping, None)
        if mapping in self._forgiven:
            self._forgiven[mapping][1].succeeded += 1
        if mapping in self._circuits:
            del self._circuits[mapping]
            self._closed.add(mapping)
            self._forgiven[mapping] = (time.time(), OutcomeCounts())
            log.info("circuit.closed", mapping=mapping)

    def record_unproven_failure(self, mapping: str) -> None:
        """Count a failure that the request itself may have caused: it lowers the uptime, and opens no circuit."""
        self._unsent[mapping].unproven += 1

    def record_failure(self, mapping: str) -> None:
        """Count a failure that the provider is to blame for."""
        if mapping.startswith(_UNSCORED):
            return
        self._unsent[mapping].failed += 1
        self._consecutive_failures[mapping] = self._consecutive_failures.get(mapping, 0) + 1
        if mapping in self._forgiven:
            self._forgiven[mapping][1].failed += 1
        circuit = self._circuits.get(mapping)
        if circuit is not None:
            circuit.pause = min(circuit.pause * 2, MAX_PROBE_PAUSE)
            circuit.next_probe = time.time() + circuit.pause
            self._changed.add(mapping)
        else:
            self._open_if_failing(mapping)

    def start_probe(self, mapping: str) -> None:
        """Note that a probe goes through an open circuit: no other follows until its outcome is known."""
        circuit = self._circuits.get(mapping)
        if circuit is not None:
            circuit.next_probe = time.time() + circuit.pause

    def reset(self) -> None:
        """Forget all counts and close all circuits, as at the start."""
        for part in (
            self._unsent,
            self._buckets,
            self._circuits,
            self._stats,
            self._forgiven,
            self._consecutive_failures,
        ):
            part.clear()
        self._closed.clear()
        self._changed.clear()

    def sync(self) -> None:
        """Share this process's counts and read those of the others, in one round trip. Raises RedisError."""
        now = time.time()
        newest = int(now // BUCKET_SECONDS)
        oldest = newest - WINDOW_SECONDS // BUCKET_SECONDS
        # Buckets older than two no longer change.
        wanted = [one for one in range(oldest + 1, newest + 1) if one >= newest - 1 or one not in self._buckets]
        sent, self._unsent = self._unsent, defaultdict(OutcomeCounts)
        changed, closed = self._changed, self._closed
        self._changed, self._closed = set(), set()
        try:
            answers = self._sync_store(newest, wanted, sent, changed, closed)
        except RedisError:
            for mapping, counts in sent.items():
                self._unsent[mapping].add(counts)
            self._changed |= changed
            self._closed |= closed
            raise
        # Buckets of the future are from before the clock was set back.
        self._buckets = {one: counts for one, counts in self._buckets.items() if oldest < one <= newest}
        for one, fields in zip(wanted, answers, strict=False):
            self._buckets[one] = _counts_of(fields)
        self._merge_circuits(answers[-1], now)
        self._stats = self._aggregate()
        for mapping in self._buckets.get(newest, {}):
            self._open_if_failing(mapping)

    def _sync_store(
        self, newest: int, wanted: list[int], sent: Mapping[str, OutcomeCounts], changed: set[str], closed: set[str]
    ) -> list[dict[str, str]]:
        """Write and read in one round trip; return the wanted buckets' fields and, last, the circuits."""
        pipe = client().pipeline(transaction=False)
        writes = 0
        for mapping, counts in sent.items():
            for name, number in counts.nonzero_fields():
                pipe.hincrby(_key(newest), f"{mapping} {name}", number)
                writes += 1
        if sent:
            pipe.expire(_key(newest), WINDOW_SECONDS + 2 * BUCKET_SECONDS)
            writes += 1
        if closed:
            pipe.hdel(CIRCUITS_KEY, *closed)
            writes += 1
        for mapping in changed & self._circuits.keys():
            pipe.hset(CIRCUITS_KEY, mapping, msgspec.json.encode(self._circuits[mapping]).decode())
            writes += 1
        for one in wanted:
            pipe.hgetall(_key(one))
        pipe.hgetall(CIRCUITS_KEY)
        return list(pipe.execute()[writes:])

    def _merge_circuits(self, published: Mapping[str, str], now: float) -> None:
        """Take over the circuits that others opened and closed; a circuit without a recent probe is dropped."""
        circuits = {mapping: msgspec.json.decode(text, type=OpenCircuit) for mapping, text in published.items()}
        stale = [mapping for mapping, circuit in circuits.items() if now - circuit.next_probe > WINDOW_SECONDS]
        if stale:
            client().hdel(CIRCUITS_KEY, *stale)
        for mapping in self._circuits.keys() & circuits.keys():
            # Each worker keeps its own time of the next trial: they need not all wait for the same one.
            circuits[mapping].next_probe = max(self._circuits[mapping].next_probe, circuits[mapping].next_probe)
        for mapping in self._circuits.keys() - circuits.keys():
            self._forgiven[mapping] = (now, OutcomeCounts())
        self._circuits = {mapping: circuit for mapping, circuit in circuits.items() if mapping not in stale}
        self._forgiven = {name: one for name, one in self._forgiven.items() if abs(now - one[0]) < 2 * BUCKET_SECONDS}

    def _open_if_failing(self, mapping: str) -> None:
        if mapping in self._circuits:
            return
        recent = self._recent(mapping)
        many = recent.failed >= max(OPEN_AFTER, OPEN_SHARE * (recent.failed + recent.succeeded))
        if many or self._consecutive_failures.get(mapping, 0) >= OPEN_AFTER:
            self._consecutive_failures.pop(mapping, None)
            self._circuits[mapping] = OpenCircuit(next_probe=time.time() + FIRST_PROBE_PAUSE, pause=FIRST_PROBE_PAUSE)
            self._changed.add(mapping)
            log.warning("circuit.opened", mapping=mapping, failed=recent.failed, succeeded=recent.succeeded)

    def _recent(self, mapping: str) -> OutcomeCounts:
        """Return the outcomes of a mapping within two buckets, or since its circuit closed."""
        if mapping in self._forgiven:
            return self._forgiven[mapping][1]
        recent = OutcomeCounts()
        newest = int(time.time() // BUCKET_SECONDS)
        for one in (newest, newest - 1):
            recent.add(self._buckets.get(one, {}).get(mapping, OutcomeCounts()))
        if mapping in self._unsent:
            recent.add(self._unsent[mapping])
        return recent

    def _aggregate(self) -> dict[str, ProviderStats]:
        totals: dict[str, OutcomeCounts] = defaultdict(OutcomeCounts)
        fresh: dict[str, int] = defaultdict(int)
        newest = max(self._buckets, default=0)
        for one, bucket in self._buckets.items():
            for mapping, counts in bucket.items():
                totals[mapping].add(counts)
                if one > newest - FRESH_SECONDS // BUCKET_SECONDS:
                    fresh[mapping] += counts.total
        return {mapping: compute_stats(counts, fresh[mapping]) for mapping, counts in totals.items()}


CIRCUIT_BREAKERS = CircuitBreakers()


def sync_forever() -> None:
    """Sync for as long as the process lives; without Valkey each worker goes by its own counts."""
    while True:
        try:
            CIRCUIT_BREAKERS.sync()
        except RedisError as error:
            log.warning("scoreboard.alone", error=type(error).__name__)
        gevent.sleep(SYNC_SECONDS)


def _key(bucket: int) -> str:
    return f"score:{bucket}"


def _counts_of(fields: Mapping[str, str]) -> dict[str, OutcomeCounts]:
    found: dict[str, OutcomeCounts] = defaultdict(OutcomeCounts)
    for name, number in fields.items():
        mapping, _, kind = name.rpartition(" ")
        found[mapping].add_field(kind, int(number))
    return found


# Unproven failures of one organization at one mapping that count, a minute and a worker; and only beside another's.
UNPROVEN_A_MINUTE = 3
_RECENT, _MAX_REMEMBERED = 60.0, 10_000
# Statuses that are about the credential, and say nothing of the provider when that is a tenant's own.
_ABOUT_CREDENTIALS = frozenset({401, 402, 403, 404, 429})
# Mapping -> organization -> since when (monotonic), and how many.
_counted: dict[str, dict[UUID, tuple[float, int]]] = {}


@dataclass(frozen=True, slots=True)
class FailureEvidence:
    """A failure that may count against a mapping; `certain` when no request could have caused it."""

    mapping: str
    certain: bool


def evidence_of(candidate: Candidate, failure: UpstreamFailure) -> FailureEvidence | None:
    """Return the evidence that a failure gives against a provider; None when it gives none."""
    if not failure.retryable:
        return None
    if candidate.credential.mode == API_KEYS and failure.status in _ABOUT_CREDENTIALS:
        return None
    return FailureEvidence(candidate.mapping, certain=failure.error_type == "network")


def record_failures(evidence: Iterable[FailureEvidence], *, answered: bool, organization_id: UUID) -> None:
    """Count the failures of a request, `answered` in the end or not, in the circuit breakers of those to blame."""
    for one in evidence:
        if answered or one.certain or _is_allowed(one.mapping, organization_id):
            CIRCUIT_BREAKERS.record_failure(one.mapping)
        else:
            CIRCUIT_BREAKERS.record_unproven_failure(one.mapping)


def _is_allowed(mapping: str, organization_id: UUID) -> bool:
    """Note an unproven failure; return whether it counts: others had some too lately, and this one not too many."""
    now = time.monotonic()
    if mapping not in _counted and len(_counted) >= _MAX_REMEMBERED:
        _counted.clear()
    recent = {one: seen for one, seen in _counted.get(mapping, {}).items() if now - seen[0] < _RECENT}
    since, count = recent.get(organization_id, (now, 0))
    recent[organization_id] = (since, count + 1)
    _counted[mapping] = recent
    return len(recent) > 1 and count < UNPROVEN_A_MINUTE

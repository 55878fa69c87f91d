"""Replica watch: asks replicas of organizations' own servers for their health and load in the background, and shares it
with the other processes through Valkey.

It watches only replicas that this process sent requests to lately, and ends when there are none. Requests never wait
for it.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final
from uuid import UUID

import gevent
import msgspec
import structlog
from gevent.pool import Pool
from redis.exceptions import RedisError

from apps.billing.worker_leases import worker_name
from apps.gateway.access.policy import OwnCredential
from apps.gateway.failures import UpstreamFailure
from apps.gateway.routing.candidate import Candidate
from apps.gateway.routing.replica_choice import ReplicaHealth, find_health, is_in_use
from apps.gateway.upstream import connection_pool
from apps.gateway.upstream.http_response import Timeouts
from apps.gateway.upstream.open_exchange import pinned_ip
from apps.kernel.concurrency.native_thread_pool import offload
from apps.kernel.valkey.redis import client
from apps.keys.own_models import ServerReplica
from apps.keys.replicas import VIEW_AGE, ProcessView, ReplicaView, read_views, views_key
from apps.keys.secrets import UnreadableSecretError, decrypt_credential

log = structlog.get_logger(__name__)

# Seconds between rounds, and those that a check may take; checks at a time, and replicas of one organization.
INTERVAL, PATIENCE, AT_ONCE, MAX_OF_ORGANIZATION = 2.0, 3.0, 128, 64
# Seconds until a server without metrics is asked for them again.
METRICS_RETRY: Final = 120.0
_MAX_METRICS: Final = 2 * 1024 * 1024
# Where each kind of server says that it works, relative to the server; others are asked for their models.
_HEALTH_PATHS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("vllm", "sglang", "tgi", "llamacpp"), "/health"),
    "ollama": "/api/version",
}
# The gauges of requests under way and waiting, by kind of server.
_GAUGES: Final[Mapping[str, tuple[str, str]]] = {
    "vllm": ("vllm:num_requests_running", "vllm:num_requests_waiting"),
    "sglang": ("sglang:num_running_reqs", "sglang:num_queue_reqs"),
    "tgi": ("tgi_batch_current_size", "tgi_queue_size"),
    "llamacpp": ("llamacpp:requests_processing", "llamacpp:requests_deferred"),
}
_SAMPLE: Final = re.compile(rb"^([a-zA-Z_:][\w:]*)(?:\{[^\n]*\})? ([0-9.eE+]+)(?: [0-9]+)?\r?$", re.MULTILINE)

_watched: dict[UUID, OwnCredential] = {}
_running = False


def watch(candidate: Candidate) -> None:
    """Watch the replicas of a candidate's server for as long as this process sends it requests. Returns at once."""
    global _running
    own = candidate.credential.own
    if own is None:
        return
    # The latest, whose replicas may have changed.
    _watched[own.id] = own
    if not _running:
        _running = True
        gevent.spawn(_watch_forever)


def _watch_forever() -> None:
    global _running
    try:
        while _watched:
            check_all()
            gevent.sleep(INTERVAL)
    finally:
        _running = False


def check_all() -> None:
    """Check every watched replica once, and exchange views with the other processes."""
    for own in list(_watched.values()):
        if not any(is_in_use(own.id, one) for one in own.replicas):
            del _watched[own.id]
    pool, checked = Pool(AT_ONCE), Counter[UUID]()
    for own in list(_watched.values()):
        for one in own.replicas:
            if checked[own.organization_id] < MAX_OF_ORGANIZATION:
                checked[own.organization_id] += 1
                pool.spawn(_check, own, one)
    pool.join()
    try:
        _share(list(_watched.values()))
    except RedisError as error:
        # Each process goes by its own counts.
        log.warning("replicas.alone", error=type(error).__name__)


def _check(own: OwnCredential, replica: ServerReplica) -> None:
    """Ask one replica for its health and, where its kind has them, its metrics."""
    health = find_health(own.id, replica)
    root = replica.url.removesuffix("/v1")
    path = _HEALTH_PATHS.get(own.server)
    status, _ = _get(own, f"{replica.url}/models" if path is None else f"{root}{path}")
    was_up = health.is_up
    # Another path than expected is answered, too.
    health.record_check(passed=status is not None and status < 500)
    if was_up and not health.is_up:
        log.warning("replica.down", provider=f"custom:{own.provider_name}", replica=replica.name, status=status)
    gauges = _GAUGES.get(own.server)
    if gauges is None or status is None or time.monotonic() < health.metrics_at:
        return
    own_before = health.in_flight
    status, body = _get(own, f"{root}/metrics")
    found = offload(len(body), read_gauges, body, gauges) if status == 200 else None
    if found is None:
        health.reported = health.running = health.waiting = None
        health.metrics_at = time.monotonic() + METRICS_RETRY
    else:
        health.running, health.waiting = found
        health.reported, health.reported_own = sum(found), min(own_before, sum(found))


def read_gauges(body: bytes, names: tuple[str, str]) -> tuple[int, int] | None:
    """Return the requests under way and waiting of Prometheus's text format, summed over models; None without them."""
    sums: dict[bytes, float] = {}
    wanted = [name.encode() for name in names]
    for name, value in _SAMPLE.findall(body):
        if name in wanted:
            try:
                sums[name] = sums.get(name, 0.0) + float(value)
            except ValueError:
                return None
    if not sums or any(not 0 <= one < 1e6 for one in sums.values()):
        return None
    running, waiting = (int(sums.get(name, 0.0)) for name in wanted)
    return running, waiting


def _get(own: OwnCredential, url: str) -> tuple[int | None, bytes]:
    """Return the status and body of an answer; None where none comes in time."""
    try:
        with gevent.Timeout(PATIENCE, UpstreamFailure("timeout", "no answer in time")):
            headers = {"Accept": "*/*", "User-Agent": "model-gateway"}
            if token := decrypt_credential(own.encrypted_token):
                headers["Authorization"] = f"Bearer {token}"
            timeouts = Timeouts(connect=PATIENCE, first_byte=PATIENCE, idle=PATIENCE, total=PATIENCE, tick=PATIENCE)
            ip = pinned_ip(url, own.organization_id)
            sending = connection_pool.send("GET", url, headers, b"", timeouts, ip, new_connection=True)
            response = _result_of(sending)
            with closing(response):
                return response.status, response.read(_MAX_METRICS)
    except (UpstreamFailure, UnreadableSecretError):
        return None, b""


def _result_of(sending: Any) -> Any:
    while True:
        try:
            next(sending)
        except StopIteration as done:
            return done.value


def _share(watched: list[OwnCredential]) -> None:
    """Write this process's view of each server, and take over the counts of the others, in one round trip."""
    if not watched:
        return
    process, now = worker_name(), time.time()
    pipe = client().pipeline(transaction=False)
    for own in watched:
        known = {one.name: _view_of(find_health(own.id, one)) for one in own.replicas}
        pipe.hset(views_key(own.id), process, msgspec.json.encode(ProcessView(now, known)).decode())
        pipe.expire(views_key(own.id), int(4 * VIEW_AGE))
        pipe.hgetall(views_key(own.id))
    answers = pipe.execute()
    for own, fields in zip(watched, answers[2::3], strict=True):
        views = read_views(fields, now)
        others = [view.replicas for name, view in views.items() if name != process]
        if gone := fields.keys() - views.keys():
            # Processes that ended.
            client().hdel(views_key(own.id), *gone)
        for one in own.replicas:
            find_health(own.id, one).others = sum(names[one.name].in_flight for names in others if one.name in names)


def _view_of(health: ReplicaHealth) -> ReplicaView:
    return ReplicaView(health.in_flight, health.is_up, health.running, health.waiting)


def forget_all() -> None:
    """Watch nothing any more."""
    _watched.clear()

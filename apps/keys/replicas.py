"""Replicas: several addresses of an organization's own server that serve the same models; set, drained, and their state
as the gateway's processes see it.

Each process shares its view in Valkey: a hash for each provider key, a field for each process. The routing of requests
reads it in the background; `apps/gateway/upstream/replica_watch.py` writes it.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import msgspec
from django.db import transaction
from redis.exceptions import RedisError

from apps.kernel.errors import NotFound
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.kernel.valkey.redis import client
from apps.keys.access import PROVIDER_KEYS
from apps.keys.model_discovery import check_address, complete_url
from apps.keys.models import ProviderKey
from apps.keys.own_models import ServerReplica, read_replicas
from apps.keys.provider_keys import require_custom, token_of
from apps.keys.ssrf_guard import check_url_field
from apps.organizations.outside_calls import outside_call

# Seconds after which a process's view no longer counts: it has died, or sends no requests.
VIEW_AGE: Final = 15.0
# The name of a server's only address.
ONLY: Final = "replica-1"


class ReplicaView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A replica as one process knows it: its own requests under way there, and the server's counts."""

    in_flight: int
    is_up: bool
    running: int | None = None
    waiting: int | None = None


class ProcessView(msgspec.Struct, frozen=True):
    """The replicas of a server as one process sees them, by name, at a moment (Unix seconds)."""

    at: float
    replicas: dict[str, ReplicaView]


class ReplicaState(msgspec.Struct, frozen=True, kw_only=True):
    """A replica and its state: `up`, `down`, `draining`, or `unknown` where no process has sent it requests lately."""

    name: str
    base_url: str
    draining: bool
    state: str
    in_flight: int
    running: int | None
    waiting: int | None


def views_key(provider_key_id: UUID) -> str:
    """Return the key of the hash with the processes' views."""
    return f"replicas:{provider_key_id}"


def read_views(fields: Mapping[Any, Any], now: float) -> dict[str, ProcessView]:
    """Return the views that still count, by process."""
    views = {}
    for process, text in fields.items():
        try:
            view = msgspec.json.decode(text, type=ProcessView)
        except msgspec.MsgspecError:
            # Another version wrote it.
            continue
        if abs(now - view.at) < VIEW_AGE:
            views[process] = view
    return views


def replicas_of(key: ProviderKey) -> tuple[ServerReplica, ...]:
    """Return the addresses of a custom provider key; the only one is a replica, too. Raises NotFound."""
    require_custom(key)
    return read_replicas(key.replicas) or (ServerReplica(ONLY, key.base_url),)


def states_of(key: ProviderKey) -> list[ReplicaState]:
    """Return the replicas of a custom provider key with their states, unknown without Valkey. Raises NotFound."""
    replicas = replicas_of(key)
    try:
        views = read_views(client().hgetall(views_key(key.id)), time.time()) if key.replicas else {}
    except RedisError:
        views = {}
    seen = [view.replicas for view in views.values()]
    return [_state_of(one, [names[one.name] for names in seen if one.name in names]) for one in replicas]


def _state_of(replica: ServerReplica, seen: Sequence[ReplicaView]) -> ReplicaState:
    ups = sum(one.is_up for one in seen)
    state = "unknown" if not seen else "up" if 2 * ups >= len(seen) else "down"
    counted = next((one for one in seen if one.running is not None), None)
    return ReplicaState(
        name=replica.name,
        base_url=replica.url,
        draining=replica.draining,
        state="draining" if replica.draining else state,
        in_flight=sum(one.in_flight for one in seen),
        running=None if counted is None else counted.running,
        waiting=None if counted is None else counted.waiting,
    )


def set_replicas(*, key: ProviderKey, wanted: Sequence[Mapping[str, Any]], token: str, live: bool) -> ProviderKey:
    """Set the addresses of a custom provider key, and return it; the first that takes requests is asked for models.

    `wanted` have `base_url`, and may have `name` and `draining`. A new address gets the stored credential, which its
    administrators may not see, so that it needs the credential in `token`. New addresses are asked for their models if
    `live`. Raises InvalidFields, InvalidRequest with a server's error, NotFound. Takes as long as the servers do.
    """
    known = {one.url for one in replicas_of(key)}
    replicas = _named([{**one, "base_url": complete_url(one["base_url"], key.server)} for one in wanted])
    _check_names(replicas)
    new = [at for at, one in enumerate(replicas) if one.url not in known]
    credential = token_of(key)
    if new and credential and not hmac.compare_digest(credential.encode(), token.encode()):
        raise InvalidFields([Issue("token", "Give the stored credential again: it is sent to the new address")])
    if new:
        with outside_call(key.organization_id):
            for at in new:
                field = f"replicas[{at}].baseUrl"
                if {"?", "#"} & set(replicas[at].url):
                    raise InvalidFields([Issue(field, "Must be a URL without query or fragment")])
                address = check_url_field(replicas[at].url, field, key.organization_id)
                if live:
                    check_address(address, credential)
    return _store(key, replicas, {"replicas": [one.url for one in replicas]})


@transaction.atomic
def drain_replica(*, key: ProviderKey, name: str, draining: bool) -> ProviderKey:
    """Send a replica no new requests, or some again. Raises NotFound, InvalidFields where none would be left."""
    # Locked before it is read: addresses that were removed meanwhile must not come back, and get the credential.
    row = PROVIDER_KEYS.lock(key)
    replicas = replicas_of(row)
    if all(one.name != name for one in replicas):
        raise NotFound("Replica not found")
    changed = [ServerReplica(one.name, one.url, draining) if one.name == name else one for one in replicas]
    if all(one.draining for one in changed):
        raise InvalidFields([Issue("draining", "Another replica must take requests")])
    return _store(row, changed, {"replica": name, "draining": draining})


@transaction.atomic
def _store(key: ProviderKey, replicas: Sequence[ServerReplica], details: Mapping[str, Any]) -> ProviderKey:
    row = PROVIDER_KEYS.lock(key)
    require_custom(row)
    stored = [{"name": one.name, "baseUrl": one.url, "draining": one.draining} for one in replicas]
    first = next(one.url for one in replicas if not one.draining)
    columns = {"replicas": stored if len(stored) > 1 else [], "base_url": first}
    PROVIDER_KEYS.update(row, columns, details)
    return row


def _named(wanted: Sequence[Mapping[str, Any]]) -> list[ServerReplica]:
    """Return the replicas, those without a name with the first free one."""
    taken = {one["name"] for one in wanted if one.get("name")}
    free = (name for number in range(1, 2 * len(wanted) + 1) if (name := f"replica-{number}") not in taken)
    return [
        ServerReplica(one.get("name") or next(free), one["base_url"].rstrip("/"), bool(one.get("draining")))
        for one in wanted
    ]


def _check_names(replicas: Sequence[ServerReplica]) -> None:
    """Raise InvalidFields for a name or an address that is there twice, and where none takes requests."""
    issues = []
    for at, one in enumerate(replicas):
        if any(other.name == one.name for other in replicas[:at]):
            issues.append(Issue(f"replicas[{at}].name", "Another replica has this name"))
        if any(other.url == one.url for other in replicas[:at]):
            issues.append(Issue(f"replicas[{at}].baseUrl", "Another replica has this address"))
    if all(one.draining for one in replicas):
        issues.append(Issue("replicas", "One replica must take requests"))
    if issues:
        raise InvalidFields(issues)

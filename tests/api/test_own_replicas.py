"""Replicas of an organization's own server over the API: set with the credential, drained, and shown by state."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from apps.kernel.valkey.redis import client
from apps.keys.models import ProviderKey
from apps.keys.replicas import ProcessView, ReplicaView, views_key
from apps.organizations.models import AuditEntry
from tests.support import own_servers
from tests.support.cast import Caller, World
from tests.support.own_servers import OwnServer, own_server, serve
from tests.support.provider_keys import TOKEN, UNASKED, create

__all__ = ["own_server"]


@pytest.fixture
def second() -> Iterator[OwnServer]:
    """A second server of the same models."""
    with serve() as server:
        server.answers = own_servers.VLLM
        yield server


@pytest.fixture
def path(world: World, administrator: Caller, own_server: OwnServer) -> str:
    """The path of the replicas of a key with one address, and a credential."""
    own_server.answers = own_servers.VLLM
    answer = create(administrator, world, baseUrl=own_server.url, server="vllm")
    return f"/keys/provider/{answer.json()['providerKey']['id']}/replicas"


def shown(name: str, url: str, state: str = "unknown", **more: Any) -> dict[str, Any]:
    """Return a replica as an answer has it."""
    draining = state == "draining"
    counts = {"inFlight": 0, "running": None, "waiting": None, **more}
    return {"name": name, "baseUrl": f"{url}/v1", "draining": draining, "state": state, **counts}


def test_a_server_is_added_with_several_addresses_in_one_step(
    world: World, administrator: Caller, own_server: OwnServer, second: OwnServer
) -> None:
    own_server.answers = own_servers.VLLM
    answer = create(administrator, world, baseUrl=own_server.url, server="vllm", replicas=[second.url])
    key = answer.json()["providerKey"]
    assert (key["baseUrl"], key["replicas"]) == (f"{own_server.url}/v1", [f"{second.url}/v1"])
    assert (own_server.paths, second.paths) == (["/v1/models"], ["/v1/models"])
    replicas = administrator.get(f"/keys/provider/{key['id']}/replicas").json()["replicas"]
    assert replicas == [shown("replica-1", own_server.url), shown("replica-2", second.url)]
    assert administrator.get(f"/keys/provider/{key['id']}/models").json()["models"][0]["contextLength"] == 40960


@pytest.mark.parametrize(
    ("replicas", "field", "message"),
    [
        (["http://127.0.0.1:1"], "replicas[0]", "Must have port 80 or 443, or one from 1024 on that is not known as a "
         "store's"),
        (["https://93.184.215.14/v1"], "replicas[0]", "Another replica has this address"),
        (["https://93.184.215.15/v1?a=b"], "replicas[0]", "Must be a URL without query or fragment"),
        (["https://93.184.215.15"] * 16, "replicas", "Must hold at most 15 items"),
    ],
)  # fmt: skip
def test_a_bad_address_is_named_and_nothing_is_stored(
    world: World, administrator: Caller, replicas: list[str], field: str, message: str
) -> None:
    response = create(administrator, world, UNASKED, replicas=replicas)
    assert (response.status_code, response.json()["issues"][0]) == (400, {"path": field, "message": message})
    assert not ProviderKey.objects.exists()


def test_a_new_address_needs_the_credential_and_is_asked_with_it(
    administrator: Caller, path: str, own_server: OwnServer, second: OwnServer
) -> None:
    body: dict[str, Any] = {"replicas": [{"baseUrl": own_server.url}, {"name": "right", "baseUrl": second.url}]}
    for token in ({}, {"token": "sk-another"}):
        answer = administrator.send("PUT", path, {**body, **token})
        assert (answer.status_code, answer.json()["issues"]) == (
            400,
            [{"path": "token", "message": "Give the stored credential again: it is sent to the new address"}],
        )
    assert (second.asked, ProviderKey.objects.get().replicas) == ([], [])
    answer = administrator.send("PUT", path, {**body, "token": TOKEN})
    replicas = [shown("replica-1", own_server.url), shown("right", second.url)]
    assert (answer.status_code, answer.json()["replicas"]) == (200, replicas)
    assert [(one.path, one.authorization) for one in second.asked] == [("/v1/models", f"Bearer {TOKEN}")]
    noted = AuditEntry.objects.filter(action="provider_key.update").get()
    assert noted.details == {"replicas": [f"{own_server.url}/v1", f"{second.url}/v1"]}
    # Known addresses need none; one address is as before.
    answer = administrator.send("PUT", path, {"replicas": [{"name": "right", "baseUrl": second.url}]})
    assert answer.json()["replicas"] == [shown("replica-1", second.url)]
    key = ProviderKey.objects.get()
    assert (key.base_url, key.replicas) == (f"{second.url}/v1", [])


def test_an_address_that_does_not_answer_is_not_set(
    administrator: Caller, path: str, own_server: OwnServer, second: OwnServer
) -> None:
    second.kill()
    body = {"replicas": [{"baseUrl": own_server.url}, {"baseUrl": second.url}], "token": TOKEN}
    answer = administrator.send("PUT", path, body)
    assert (answer.status_code, answer.json()["message"]) == (
        400,
        "The provider key was not accepted: the provider could not be reached",
    )
    assert ProviderKey.objects.get().replicas == []
    assert administrator.send("PUT", f"{path}?validate=false", body).status_code == 200


def test_replicas_are_drained_but_for_the_last(
    administrator: Caller, path: str, own_server: OwnServer, second: OwnServer
) -> None:
    addresses = [{"baseUrl": own_server.url}, {"baseUrl": second.url}]
    administrator.send("PUT", path, {"replicas": addresses, "token": TOKEN})
    answer = administrator.send("PATCH", path, {"name": "replica-1", "draining": True}).json()
    assert answer["replicas"] == [shown("replica-1", own_server.url, "draining"), shown("replica-2", second.url)]
    # Its models are asked for where requests go.
    assert ProviderKey.objects.get().base_url == f"{second.url}/v1"
    answer = administrator.send("PATCH", path, {"name": "replica-2", "draining": True})
    assert (answer.status_code, answer.json()["issues"]) == (
        400,
        [{"path": "draining", "message": "Another replica must take requests"}],
    )
    answer = administrator.send("PATCH", path, {"name": "replica-9", "draining": True})
    assert (answer.status_code, answer.json()) == (404, {"message": "Replica not found"})
    answer = administrator.send("PATCH", path, {"name": "replica-1", "draining": False}).json()
    assert [one["draining"] for one in answer["replicas"]] == [False, False]


def test_states_are_those_that_processes_saw_lately(
    administrator: Caller, path: str, own_server: OwnServer, second: OwnServer
) -> None:
    addresses = [{"baseUrl": own_server.url}, {"baseUrl": second.url}]
    administrator.send("PUT", path, {"replicas": addresses, "token": TOKEN})
    now, key = time.time(), views_key(ProviderKey.objects.get().id)
    busy = ReplicaView(in_flight=3, is_up=True, running=7, waiting=2)
    views = {
        "one": ProcessView(now, {"replica-1": busy, "replica-2": ReplicaView(1, False)}),
        "two": ProcessView(now - 5, {"replica-1": ReplicaView(4, True), "replica-2": ReplicaView(0, False)}),
        "dead": ProcessView(now - 60, {"replica-1": ReplicaView(50, False)}),
    }
    client().hset(key, mapping={name: msgspec.json.encode(view).decode() for name, view in views.items()})
    client().hset(key, "unreadable", "{")
    assert administrator.get(path).json()["replicas"] == [
        shown("replica-1", own_server.url, "up", inFlight=7, running=7, waiting=2),
        shown("replica-2", second.url, "down", inFlight=1),
    ]


@pytest.mark.parametrize(
    ("replicas", "field", "message"),
    [
        ([], "replicas", "Must not be empty"),
        ([{"baseUrl": "https://a.example"}] * 2, "replicas[1].baseUrl", "Another replica has this address"),
        (
            [{"name": "a", "baseUrl": "https://a.example"}, {"name": "a", "baseUrl": "https://b.example"}],
            "replicas[1].name",
            "Another replica has this name",
        ),
        ([{"baseUrl": "https://a.example", "draining": True}], "replicas", "One replica must take requests"),
        ([{"baseUrl": "https://a.example", "name": "A b"}], "replicas[0].name", "Must be 1 to 40 of a-z, 0-9 and -"),
    ],
)
def test_bad_replicas_are_named_and_change_nothing(
    administrator: Caller, path: str, replicas: list[Any], field: str, message: str
) -> None:
    before = ProviderKey.objects.get()
    answer = administrator.send("PUT", path, {"replicas": replicas, "token": TOKEN})
    assert (answer.status_code, answer.json()["issues"][0]) == (400, {"path": field, "message": message})
    after = ProviderKey.objects.get()
    assert (after.replicas, after.base_url, after.updated_at) == ([], before.base_url, before.updated_at)

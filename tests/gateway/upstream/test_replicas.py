"""Replicas of an organization's own server, over real HTTP: which one is asked, and what follows when one is busy,
killed, hung, failing or drained."""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Event
from typing import Any

import msgspec
import pytest

from apps.gateway.access import policy
from apps.gateway.routing import replica_choice
from apps.gateway.routing.replica_choice import FIRST_PAUSE, MAX_PAUSE, OPEN_AFTER, ReplicaHealth, find_health
from apps.gateway.upstream import open_exchange, replica_watch
from apps.gateway.upstream.replica_watch import read_gauges
from apps.kernel.valkey.redis import client
from apps.keys.models import ProviderKey
from apps.keys.own_models import read_replicas
from apps.keys.replicas import ProcessView, ReplicaView, views_key
from apps.keys.secrets import encrypt_credential
from tests.support.own_servers import OwnServer, chat_answer, chat_stream, serve
from tests.support.upstream import Caller, chunks_of, settle_all

CHAT, MODEL = "/v1/chat/completions", "custom:box/qwen"
USAGE = {"prompt_tokens": 10, "completion_tokens": 2}
METRICS = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="qwen"} %d.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="qwen"} %d.0
vllm:num_requests_waiting_total{engine="0"} 99.0
"""


class Servers:
    """Two servers of the same model, and the provider key that has both."""

    def __init__(self, servers: dict[str, OwnServer], key: ProviderKey) -> None:
        self.by_name, self.key = servers, key

    def health(self, name: str) -> ReplicaHealth:
        """Return what this process knows of a replica."""
        [replica] = [one for one in read_replicas(self.key.replicas) if one.name == name]
        return find_health(self.key.id, replica)

    def chats(self) -> dict[str, int]:
        """Return the chats that each server got."""
        return {name: server.times_asked(CHAT) for name, server in self.by_name.items()}

    def change(self, **columns: Any) -> None:
        """Change the key's row."""
        ProviderKey.objects.filter(pk=self.key.pk).update(**columns)
        self.key.refresh_from_db()
        policy.forget_all()


@pytest.fixture
def servers(caller: Caller, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    """Two vLLM servers; nothing watches them in the background."""
    settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES = True
    monkeypatch.setattr(replica_watch, "_running", True)
    # No pause ends by itself.
    monkeypatch.setattr(replica_choice, "FIRST_PAUSE", 600.0)
    monkeypatch.setattr(replica_choice, "MAX_PAUSE", 6_000.0)
    open_exchange.forget_addresses()
    replica_choice.forget_all()
    with serve() as left, serve() as right:
        named = {"left": left, "right": right}
        for name, server in named.items():
            server.answers = {CHAT: chat_answer({"content": f"I am {name}"}, USAGE), "/health": {}}
        key = ProviderKey.objects.create(
            organization_id=caller.organization_id,
            provider="custom",
            provider_name="box",
            server="vllm",
            base_url=f"{left.url}/v1",
            encrypted_token=encrypt_credential("sk-ours"),
            replicas=[
                {"name": name, "baseUrl": f"{server.url}/v1", "draining": False} for name, server in named.items()
            ],
        )
        yield Servers(named, key)
    replica_watch.forget_all()
    replica_choice.forget_all()


def answered_by(response: Any) -> str:
    """Return which server wrote the answer."""
    content: str = response.json()["choices"][0]["message"]["content"]
    return content.removeprefix("I am ")


def tried(response: Any) -> list[tuple[str, str]]:
    """Return the replicas that were asked, and how it ended."""
    return [(line["replica"], line["error_type"]) for line in response.json()["metadata"]["routing"]]


def home_of(caller: Caller, name: str) -> str:
    """Return a prompt whose conversation belongs to a replica."""
    for number in range(64):
        prompt = f"conversation {number}"
        body = {"model": MODEL, "messages": [{"role": "user", "content": prompt}]}
        if explain(caller, body)["replicaChoices"][0]["replicas"][0]["name"] == name:
            return prompt
    raise AssertionError(f"no conversation belongs to {name}")


def explain(caller: Caller, body: dict[str, Any]) -> Any:
    """Return the explanation of a route."""
    headers = {"Authorization": f"Bearer {caller.token}"}
    answer = caller.client.post("/v1/route/explain", body, content_type="application/json", headers=headers)
    assert answer.status_code == 200
    return answer.json()


class TestAffinity:
    def test_a_conversation_stays_at_its_replica_and_conversations_are_spread(
        self, caller: Caller, servers: Servers
    ) -> None:
        system = {"role": "system", "content": "Be brief. " * 500}
        homes = []
        for number in range(12):
            messages = [system, {"role": "user", "content": f"Question {number}"}]
            first = answered_by(caller.chat(model=MODEL, messages=messages))
            longer = [*messages, {"role": "assistant", "content": "yes"}, {"role": "user", "content": "And why?"}]
            assert answered_by(caller.chat(model=MODEL, messages=longer)) == first
            homes.append(first)
        assert 2 <= homes.count("left") <= 10
        assert {one.authorization for server in servers.by_name.values() for one in server.asked} == {"Bearer sk-ours"}

    def test_a_named_session_stays_whatever_it_says(self, caller: Caller, servers: Servers) -> None:
        for session in range(4):
            headers = {"x-session-id": f"session-{session}"}
            homes = {answered_by(caller.chat(f"question {n}", model=MODEL, headers=headers)) for n in range(3)}
            assert len(homes) == 1
        assert min(servers.chats().values()) > 0

    def test_a_busy_replica_passes_requests_on_and_says_so(self, caller: Caller, servers: Servers) -> None:
        prompt = home_of(caller, "left")
        body = {"model": MODEL, "messages": [{"role": "user", "content": prompt}]}
        expected = {
            "providerId": "custom:box",
            "selected": "left",
            "reason": "prefix-affinity",
            "affinity": "prompt",
            "replicas": [{"name": "left", "state": "up", "load": 0}, {"name": "right", "state": "up", "load": 0}],
        }
        explained = explain(caller, body)
        assert explained["replicaChoices"] == [expected]
        assert [(one["provider"], one["replica"]) for one in explained["order"]] == [
            ("custom:box", "left"),
            ("custom:box", "right"),
        ]
        assert answered_by(caller.chat(prompt, model=MODEL)) == "left"
        servers.health("left").in_flight = 3
        expected |= {"selected": "right", "reason": "overflow"}
        expected["replicas"] = [{"name": "left", "state": "up", "load": 3}, {"name": "right", "state": "up", "load": 0}]
        assert explain(caller, body)["replicaChoices"] == [expected]
        response = caller.chat(prompt, model=MODEL)
        assert (answered_by(response), tried(response)) == ("right", [("right", "none")])
        # Both are busy: it is better off where its prompt is known.
        servers.health("right").in_flight = 3
        assert answered_by(caller.chat(prompt, model=MODEL)) == "left"
        servers.health("left").in_flight = servers.health("right").in_flight = 0

    def test_requests_without_a_prompt_go_to_the_least_busy(self, caller: Caller, servers: Servers) -> None:
        vectors = {"object": "list", "data": [{"index": 0, "embedding": [0.5]}], "model": "m", "usage": USAGE}
        for server in servers.by_name.values():
            server.answers["/v1/embeddings"] = vectors
        headers = {"Authorization": f"Bearer {caller.token}"}
        servers.health("left").in_flight = 1
        for number in range(4):
            body = {"model": MODEL, "input": f"text {number}"}
            answer = caller.client.post("/v1/embeddings", body, content_type="application/json", headers=headers)
            assert answer.status_code == 200
        asked = {name: server.times_asked("/v1/embeddings") for name, server in servers.by_name.items()}
        assert asked == {"left": 0, "right": 4}


class TestFailures:
    def test_a_killed_replica_costs_no_request_and_is_passed_over(self, caller: Caller, servers: Servers) -> None:
        prompt = home_of(caller, "left")
        servers.by_name["left"].kill()
        response = caller.chat(prompt, model=MODEL)
        assert (response.status_code, answered_by(response)) == (200, "right")
        assert tried(response) == [("left", "network"), ("right", "none")]
        again = caller.chat(prompt, model=MODEL)
        assert tried(again) == [("right", "none")]
        [choice] = again.json()["metadata"]["replicaChoices"]
        assert choice["replicas"][0]["state"] == "circuit-open"
        assert settle_all() == 2

    def test_it_is_used_again_when_it_is_back(self, caller: Caller, servers: Servers) -> None:
        prompt, left = home_of(caller, "left"), servers.by_name["left"]
        left.kill()
        caller.chat(prompt, model=MODEL)
        for _ in range(2):
            replica_watch.check_all()
        health = servers.health("left")
        assert (health.is_up, health.failed_checks) == (False, 2)
        # Its circuit is due, but its checks fail.
        health.open_until = time.monotonic() - 1
        assert tried(caller.chat(prompt, model=MODEL)) == [("right", "none")]
        with serve(left.port) as back:
            back.answers = left.answers
            replica_watch.check_all()
            assert tried(caller.chat(prompt, model=MODEL)) == [("left", "none")]
            assert (health.is_up, health.open_until) == (True, None)

    def test_a_hung_replica_is_left_after_a_timeout_and_found_by_its_checks(
        self, caller: Caller, servers: Servers, settings: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings.UPSTREAM_FIRST_BYTE_TIMEOUT = 0.3
        monkeypatch.setattr(replica_watch, "PATIENCE", 0.3)
        prompt, released = home_of(caller, "left"), Event()

        def hang(_: Any) -> Any:
            released.wait(30)
            return {}

        servers.by_name["left"].answers = {CHAT: hang, "/health": hang}
        response = caller.chat(prompt, model=MODEL)
        assert (answered_by(response), tried(response)) == ("right", [("left", "timeout"), ("right", "none")])
        assert servers.health("left").open_until is None, "one timeout may be a long prompt"
        for _ in range(2):
            replica_watch.check_all()
        assert tried(caller.chat(prompt, model=MODEL)) == [("right", "none")]
        assert servers.health("left").in_flight == 0
        released.set()

    def test_a_hedge_asks_another_replica(self, caller: Caller, servers: Servers) -> None:
        prompt, released = home_of(caller, "left"), Event()

        def hang(_: Any) -> Any:
            released.wait(30)
            return chat_stream({"content": "late"})

        servers.by_name["left"].answers[CHAT] = hang
        servers.by_name["right"].answers[CHAT] = chat_stream({"content": "I am right"}, usage=USAGE)
        response = caller.chat(prompt, model=MODEL, stream=True, headers={"X-Hedge": "50"})
        chunks = chunks_of(response)
        released.set()
        text = "".join(one["choices"][0]["delta"].get("content") or "" for one in chunks[:-1] if one["choices"])
        assert text == "I am right"
        assert [server.times_asked(CHAT) for server in servers.by_name.values()] == [1, 1]

    def test_errors_in_a_row_open_its_circuit_until_a_request_succeeds(self, caller: Caller, servers: Servers) -> None:
        prompt, left = home_of(caller, "left"), servers.by_name["left"]
        good = left.answers[CHAT]
        left.answers[CHAT] = (500, b'{"error": {"message": "CUDA error: device-side assert"}}')
        for _ in range(OPEN_AFTER):
            assert tried(caller.chat(prompt, model=MODEL)) == [("left", "upstream_error"), ("right", "none")]
        assert tried(caller.chat(prompt, model=MODEL)) == [("right", "none")]
        health = servers.health("left")
        # One request finds out that it still fails, and the pause is doubled.
        health.open_until = time.monotonic() - 1
        assert tried(caller.chat(prompt, model=MODEL)) == [("left", "upstream_error"), ("right", "none")]
        assert tried(caller.chat(prompt, model=MODEL)) == [("right", "none")]
        assert health.pause == 2 * replica_choice.FIRST_PAUSE
        left.answers[CHAT] = good
        health.open_until = time.monotonic() - 1
        assert [tried(caller.chat(prompt, model=MODEL)) for _ in range(2)] == [[("left", "none")]] * 2
        assert (health.pause, health.failures) == (replica_choice.FIRST_PAUSE, 0)

    def test_a_refused_request_is_not_repeated_and_says_nothing_of_the_replica(
        self, caller: Caller, servers: Servers
    ) -> None:
        prompt = home_of(caller, "left")
        servers.by_name["left"].answers[CHAT] = (400, b'{"error": {"message": "no such option"}}')
        assert caller.chat(prompt, model=MODEL).status_code == 400
        assert (servers.chats(), servers.health("left").failures) == ({"left": 1, "right": 0}, 0)

    def test_without_any_that_works_all_are_tried(self, caller: Caller, servers: Servers) -> None:
        for name, server in servers.by_name.items():
            server.kill()
            servers.health(name).failed_checks = 2
        response = caller.chat(model=MODEL)
        assert response.status_code == 502
        settle_all()

    def test_a_circuit_rests_longer_each_time_within_bounds(self) -> None:
        health = ReplicaHealth()
        for _ in range(10):
            health.record_failure(certain=True)
        assert health.pause == MAX_PAUSE
        health.record_success()
        assert (health.pause, health.is_up) == (FIRST_PAUSE, True)


def test_a_draining_replica_gets_no_new_requests(caller: Caller, servers: Servers) -> None:
    prompt = home_of(caller, "left")
    left, right = servers.key.replicas
    servers.change(replicas=[{**left, "draining": True}, right])
    assert [answered_by(caller.chat(prompt, model=MODEL)) for _ in range(3)] == ["right"] * 3
    assert servers.chats() == {"left": 0, "right": 3}
    servers.change(replicas=[left, right])
    assert answered_by(caller.chat(prompt, model=MODEL)) == "left"


class TestLoad:
    def test_the_servers_metrics_are_the_load(self, caller: Caller, servers: Servers) -> None:
        prompt = home_of(caller, "left")
        caller.chat(prompt, model=MODEL)
        servers.by_name["left"].answers["/metrics"] = (200, METRICS % (6, 2))
        servers.by_name["right"].answers["/metrics"] = (200, METRICS % (1, 0))
        replica_watch.check_all()
        health = servers.health("left")
        assert (health.running, health.waiting, health.load) == (6, 2, 8)
        # Requests that this process sent since are not in it yet.
        health.in_flight += 2
        assert health.load == 10
        health.in_flight -= 2
        assert answered_by(caller.chat(prompt, model=MODEL)) == "right"
        del servers.by_name["left"].answers["/metrics"]
        replica_watch.check_all()
        assert (health.load, health.running) == (0, None)
        asked = servers.by_name["left"].times_asked("/metrics")
        replica_watch.check_all()
        assert servers.by_name["left"].times_asked("/metrics") == asked, "a server without metrics is asked seldom"

    def test_processes_share_their_counts(self, caller: Caller, servers: Servers) -> None:
        prompt = home_of(caller, "left")
        caller.chat(prompt, model=MODEL)
        key = views_key(servers.key.id)
        views = {
            "another": ProcessView(time.time(), {"left": ReplicaView(in_flight=5, is_up=True)}),
            "dead": ProcessView(time.time() - 60, {"left": ReplicaView(in_flight=50, is_up=True)}),
        }
        client().hset(key, mapping={name: msgspec.json.encode(view).decode() for name, view in views.items()})
        servers.health("left").in_flight = 1
        replica_watch.check_all()
        assert (servers.health("left").load, servers.health("right").load) == (6, 0)
        servers.health("left").in_flight = 0
        fields = client().hgetall(key)
        own = [msgspec.json.decode(text, type=ProcessView) for name, text in fields.items() if name != "another"]
        assert [view.replicas for view in own] == [
            {"left": ReplicaView(in_flight=1, is_up=True), "right": ReplicaView(in_flight=0, is_up=True)}
        ]

    def test_a_replica_that_is_not_used_is_not_watched(self, caller: Caller, servers: Servers) -> None:
        caller.chat(model=MODEL)
        for name in servers.by_name:
            servers.health(name).used_at = time.monotonic() - 1_000
        replica_watch.check_all()
        assert all(server.times_asked("/health") == 0 for server in servers.by_name.values())

    @pytest.mark.parametrize(
        "body",
        [b"", b"<html>", b"vllm:num_requests_running NaN\n", b"vllm:num_requests_running -1\n",
         b"vllm:num_requests_running 1e300\n", b"vllm:num_requests_running 1e\n", b"other 1\n"],
    )  # fmt: skip
    def test_hostile_metrics_are_none(self, body: bytes) -> None:
        assert read_gauges(body, ("vllm:num_requests_running", "vllm:num_requests_waiting")) is None


def test_an_ordinary_provider_has_no_replica(caller: Caller) -> None:
    metadata = caller.chat().json()["metadata"]
    assert "replicaChoices" not in metadata
    assert "replica" not in metadata["routing"][0]

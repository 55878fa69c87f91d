"""The sandbox upstream as a process of the test run, and the catalog pointed at it.

Fixtures for tests that go through the gateway in this process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
import requests
from django.test import Client

from apps.billing import balances, reservations
from apps.billing.worker_leases import worker_name
from apps.catalog.models import ModelProvider, Provider
from apps.gateway.access import credentials, policy
from apps.gateway.admission import offline_accounts, offline_admission
from apps.gateway.routing import circuit_breaker
from apps.gateway.settlement import outbox, worker_lease
from apps.gateway.settlement.outbox import BUFFER
from apps.gateway.settlement.settle import settle
from apps.gateway.upstream import connection_pool
from apps.kernel.valkey.redis import client as valkey
from apps.keys.models import ApiKey
from apps.keys.secrets import digest_of, new_token
from apps.organizations.models import Membership, Organization, Project, Role
from tests.stack.product import PROJECT, eventually, free_port
from tests.support.cast import make_user
from tests.support.shipped_catalog import stock


@pytest.fixture(scope="session")
def sandbox_url() -> Iterator[str]:
    """The address of a sandbox upstream that lives as long as the test run."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "apps.sandbox", "--port", str(port)], cwd=PROJECT)
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: answers(url))
        yield url
    finally:
        process.terminate()
        process.wait(60)


def answers(url: str) -> bool:
    """Tell whether a sandbox is up."""
    try:
        return requests.get(f"{url}/healthz", timeout=1).status_code == 200
    except requests.RequestException:
        return False


@dataclass(frozen=True, slots=True)
class Caller:
    """Someone with an API key, who asks through Django's test client."""

    client: Client
    token: str
    key: ApiKey
    sandbox_url: str

    def chat(self, content: Any = "hello", **fields: Any) -> Any:
        """Ask for a chat completion; of `sandbox/echo` unless `model` says otherwise. `headers` are HTTP headers."""
        headers = {"Authorization": f"Bearer {self.token}", **fields.pop("headers", {})}
        body = {"model": "sandbox/echo", "messages": [{"role": "user", "content": content}], **fields}
        return self.client.post("/v1/chat/completions", body, content_type="application/json", headers=headers)

    def sent(self, tag: str) -> list[dict[str, Any]]:
        """Return what the upstream was sent under a tag."""
        answer = requests.get(f"{self.sandbox_url}/sandbox/requests", params={"tag": tag}, timeout=5).json()
        return list(answer["requests"])

    @property
    def organization_id(self) -> UUID:
        """The organization that pays."""
        return self.key.project.organization_id


@pytest.fixture
def caller(db: None, sandbox_url: str, monkeypatch: pytest.MonkeyPatch, client: Client) -> Caller:
    """A key of an organization with 100 USD, and the catalog's sandbox at the running upstream."""
    monkeypatch.setenv("SANDBOX_BASE_URL", f"{sandbox_url}/v1")
    monkeypatch.setenv("SANDBOX_API_KEY", "sandbox-secret")
    stock()
    policy.forget_all()
    circuit_breaker.CIRCUIT_BREAKERS.reset()
    credentials.reset_cooldowns()
    offline_accounts.forget_all()
    offline_admission.forget_all()
    outbox.prepare()
    BUFFER.take()
    worker_lease.start()
    connection_pool.close_idle()
    user = make_user("Olivia")
    organization = Organization.objects.create(name="Acme", credits=100, plan="enterprise")
    Membership.objects.create(organization=organization, user=user, role=Role.OWNER)
    project = Project.objects.create(organization=organization, name="Default Project")
    token = new_token()
    key = ApiKey.objects.create(
        project=project,
        created_by=user,
        description="test",
        digest=digest_of(token),
        prefix=token[:7],
        last_four=token[-4:],
    )
    return Caller(client, token, key, sandbox_url)


def settle_all() -> int:
    """Do the settler's work; return how many records were new."""
    return settle(outbox.read_batch("test", 100, 1))


def nothing_happened(caller: Caller) -> bool:
    """Return whether no provider was called, nothing is held and nothing waits to be recorded."""
    held = valkey().hget(balances.key("organization", caller.organization_id), "held")
    return (held in {None, "0"}, valkey().xlen(outbox.STREAMS[0]), reservations.notes_of(worker_name(), 0)) == (
        True,
        0,
        {},
    )


def chunks_of(response: Any) -> list[Any]:
    """Return the data of a stream's events; `[DONE]` as the text it is."""
    text = b"".join(response.streaming_content).decode()
    lines = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


@pytest.fixture
def backup(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> str:
    """A second, dearer provider of `echo`; returns its id."""
    monkeypatch.setenv("BACKUP_API_KEY", "backup-secret")
    monkeypatch.setenv("BACKUP_BASE_URL", os.environ["SANDBOX_BASE_URL"])
    Provider.objects.create(
        id="backup", name="Backup", dialect="openai", auth="bearer", base_url="http://x", api_key_env="BACKUP_API_KEY"
    )
    first = ModelProvider.objects.get(provider_id="sandbox", model_id="echo")
    first.pk, first.provider_id, first.prices = None, "backup", {"input": "1.5", "output": "6"}
    first._state.adding = True
    first.save()
    return "backup"

"""More providers of `echo`, all of them the sandbox, each at a price of its own; asking for it, and what time it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
import requests

from apps.catalog.models import ModelProvider, Provider
from apps.gateway.access import credentials
from apps.gateway.routing import circuit_breaker
from apps.gateway.routing.circuit_breaker import CIRCUIT_BREAKERS
from apps.gateway.upstream import failover
from apps.kernel.valkey import generation
from tests.support.model_routes import Answer, post
from tests.support.upstream import Caller

# Adds a provider: its id, its price per million tokens in and out, and what else its mapping has; returns the id.
Adding = Callable[..., str]


@pytest.fixture
def add_provider(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> Adding:
    """A way to add providers of `echo`, which the sandbox itself offers at 0.15 and 0.6."""

    def add(name: str, price: str = "1", secrets: str = "secret", **mapping: Any) -> str:
        monkeypatch.setenv(f"{name.upper()}_API_KEY", secrets)
        monkeypatch.setenv(f"{name.upper()}_BASE_URL", os.environ["SANDBOX_BASE_URL"])
        Provider.objects.create(
            id=name,
            name=name,
            dialect="openai",
            auth="bearer",
            base_url="http://x",
            api_key_env=f"{name.upper()}_API_KEY",
            facts=Provider.objects.get(pk="sandbox").facts,
            priority=mapping.pop("priority", 1.0),
        )
        row = ModelProvider.objects.get(provider_id="sandbox", model_id=mapping.pop("model_id", "echo"))
        row.pk, row.provider_id, row.prices = None, name, {"input": price, "output": price}
        # `prices` among the mapping's fields goes before one price for all.
        for field, value in mapping.items():
            setattr(row, field, value)
        row._state.adding = True
        row.save()
        generation.bump(generation.CATALOG)
        return name

    return add


class Clock:
    """The time that scoreboards and credentials go by."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def time(self) -> float:
        return self.now

    monotonic = time


class _Unsynced:
    """The board as the greenlet that keeps it finds it: there is nothing to compare. Tests sync the board itself."""

    def sync(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(CIRCUIT_BREAKERS, name)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """A clock that the test moves; retries do not really wait, and no worker syncs of its own accord."""
    clock = Clock()
    for module in (circuit_breaker, credentials):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(failover, "backoff", lambda *_: 0)
    monkeypatch.setattr(circuit_breaker, "CIRCUIT_BREAKERS", _Unsynced())
    circuit_breaker._counted.clear()
    yield clock
    CIRCUIT_BREAKERS.reset()
    credentials.reset_cooldowns()


def ask_echo(caller: Caller, script: str = "", **fields: Any) -> tuple[Answer, list[str]]:
    """Ask `echo` of whomever; return the answer and the ends of the credentials that were used, in order."""
    journal = f"{caller.sandbox_url}/sandbox/requests"
    # A request whose credential is refused is kept without its tag, so all are forgotten first.
    requests.delete(journal, timeout=5)
    answer = post(caller, "chat", f"hi [[sandbox tag={uuid4().hex} {script}]]", **{"model": "echo", **fields})
    asked = requests.get(journal, timeout=5).json()["requests"]
    return answer, [one["headers"]["authorization"][-4:] for one in asked]


def tried(answer: Answer) -> list[tuple[str, int, bool]]:
    """Return whom the answer says were asked, and how that went."""
    attempts_made = answer.json()["metadata"]["routing"]
    return [(one["provider"], one["status_code"], one["succeeded"]) for one in attempts_made]


def stands(mapping: str, answered: int, failed: int) -> None:
    """Make it known how a provider did in the last minutes."""
    for _ in range(answered):
        CIRCUIT_BREAKERS.record_success(mapping, first_token_ms=None, tokens=0, seconds=1.0)
    CIRCUIT_BREAKERS._unsent[mapping].failed += failed
    CIRCUIT_BREAKERS.sync()

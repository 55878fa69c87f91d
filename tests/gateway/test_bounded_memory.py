"""Memory under names that come from outside is bounded."""

from __future__ import annotations

from uuid import uuid4

import pytest

from apps.gateway.access import credentials
from apps.gateway.access.credentials import API_KEYS, Credential
from apps.gateway.access.policy import OwnCredential
from apps.gateway.routing.circuit_breaker import NO_TRAFFIC, CircuitBreakers


def test_models_that_tenants_make_up_are_not_scored() -> None:
    board = CircuitBreakers()
    for number in range(100):
        board.record_failure(f"custom:our-own/model-{number}")
        board.record_success(f"custom:our-own/other-{number}", first_token_ms=1, tokens=20, seconds=1.0)
    assert (board._unsent, board._consecutive_failures) == ({}, {})


def test_a_tenants_failing_provider_opens_no_circuit_of_another_tenants() -> None:
    """Names of tenants' own providers are theirs alone: two organizations may use the same."""
    board = CircuitBreakers()
    for _ in range(20):
        board.record_failure("custom:our-own/echo")
    assert board.stats("custom:our-own/echo") == NO_TRAFFIC


def test_credentials_that_rest_are_forgotten_again(monkeypatch: pytest.MonkeyPatch) -> None:
    credentials.reset_cooldowns()
    monkeypatch.setattr(credentials, "_MAX_COOLING", 3)
    keys = [Credential(API_KEYS, own=OwnCredential(uuid4(), "openai", "", "", b"", uuid4())) for _ in range(5)]
    for key in keys[:3]:
        credentials.cool_down(key, 429, retry_after=0.000001)
    credentials.cool_down(keys[3], 401)
    assert list(credentials._cooling_until) == [keys[3].name], "those whose rest is over went first"
    monkeypatch.setattr(credentials, "_MAX_COOLING", 1)
    credentials.cool_down(keys[4], 401)
    assert list(credentials._cooling_until) == [keys[4].name]
    credentials.reset_cooldowns()

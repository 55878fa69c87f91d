"""`GET /v1/models/{model}/endpoints`: a model's providers as OpenRouter lists them, with their performance."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from apps.catalog import catalog_cache
from apps.gateway.routing.circuit_breaker import CIRCUIT_BREAKERS, OutcomeCounts, compute_stats
from apps.kernel.valkey import generation
from apps.logs.entry import ProviderOutcome
from tests.logs.entries import ago, entry, id_at, write
from tests.support.model_routes import error_of
from tests.support.shipped_catalog import stock

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _listed() -> None:
    stock()
    catalog_cache.refresh(generation.read_generation_token(generation.CATALOG))


def endpoints(client: Client, name: str) -> dict[str, Any]:
    answer = client.get(f"/v1/models/{name}/endpoints")
    assert answer.status_code == 200
    data: dict[str, Any] = answer.json()["data"]
    return data


def test_each_provider_has_prices_limits_and_figures(client: Client) -> None:
    ok = ProviderOutcome(model="echo", provider="sandbox", succeeded=True, first_token=400, tokens=100, writing=2000)
    failed = ProviderOutcome(model="echo", provider="sandbox", succeeded=False)
    write(entry(outcomes=[ok, failed, ok]), entry(id=id_at(ago(days=3)), outcomes=[ok]))
    counts = OutcomeCounts()
    counts.add_success(120, 10, 1.0)
    CIRCUIT_BREAKERS._stats["sandbox/echo"] = compute_stats(counts)
    try:
        data = endpoints(client, "echo")
    finally:
        CIRCUIT_BREAKERS.reset()
    listed = client.get("/v1/models/echo").json()
    assert {name: data[name] for name in data if name != "endpoints"} == {
        name: listed[name] for name in ("id", "name", "created", "description", "architecture")
    }
    [found] = data["endpoints"]
    assert found["pricing"] == listed["pricing"]
    assert found["supported_parameters"] == listed["supported_parameters"]
    measured = {name: found[name] for name in ("status", "uptime_last_5m", "uptime_last_30m", "uptime_last_1d")}
    assert measured == {"status": 0, "uptime_last_5m": 100.0, "uptime_last_30m": None, "uptime_last_1d": 66.67}
    # The middle of the step of three equal answers; a step ends 19 % above its begin.
    speed = {"latency_ms": {"p50": 395, "p95": 427}, "throughput": {"p50": 49}}
    assert found["performance"] == {
        "last_24h": {"uptime": 66.67, **speed},
        "last_7d": {"uptime": 75.0, **speed},
        "last_30d": {"uptime": 75.0, **speed},
    }
    assert (found["tag"], found["model_id"], found["provider_name"]) == ("sandbox", "echo", "Sandbox")


def test_a_model_is_found_by_any_of_its_names(client: Client) -> None:
    whole = endpoints(client, "claude-opus-4-5")
    assert len(whole["endpoints"]) > 1
    prices = [float(one["pricing"]["prompt"]) for one in whole["endpoints"]]
    assert prices == sorted(prices)
    for name in ("claude-opus-4-5-20251101", "anthropic/claude-opus-4-5"):
        assert endpoints(client, name)["id"] == "claude-opus-4-5"
    [never] = [one for one in whole["endpoints"] if one["tag"] == "anthropic"]
    assert never["performance"]["last_30d"] == {
        "uptime": None,
        "latency_ms": {"p50": None, "p95": None},
        "throughput": {"p50": None},
    }
    assert (never["uptime_last_5m"], never["uptime_last_1d"]) == (None, None)


def test_a_circuit_that_is_open_is_told(client: Client) -> None:
    try:
        for _ in range(5):
            CIRCUIT_BREAKERS.record_failure("sandbox/echo")
        assert endpoints(client, "echo")["endpoints"][0]["status"] == -1
    finally:
        CIRCUIT_BREAKERS.reset()


def test_what_does_not_exist_and_a_wrong_key_are_refused(client: Client) -> None:
    answer = client.get("/v1/models/qqqqqqqqqqqq/endpoints")
    message = "The model `qqqqqqqqqqqq` does not exist"
    assert (answer.status_code, answer.json()) == (
        404,
        error_of("chat", 404, "invalid_request_error", "not_found", message),
    )
    assert client.get("/v1/models/echo/endpoints", headers={"authorization": "Bearer wrong"}).status_code == 401
    assert client.post("/v1/models/echo/endpoints").status_code == 405

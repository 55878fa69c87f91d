"""The first scrape: every counter and histogram whose label values are known is there, at zero."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from gateway_project.configuration.data_directory import PROJECT

# A process that has answered nothing: its series and their values, by metric.
PROGRAM = """
import json, os, sys
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway_project.settings")
import django
django.setup()
import gateway_project.urls, gateway_project.http.client_events, apps.gateway.pipeline
from apps.kernel.postgres.replica import Replica
from prometheus_client import REGISTRY
Replica("replica_1", max_lag=1.0)
assert not {"celery", "apps.guardrails.rules.secrets"} & sys.modules.keys(), "loaded, which takes seconds of the start"
print(json.dumps({
    metric.name: {"type": metric.type, "samples": [
        [one.name, one.labels, one.value] for one in metric.samples if not one.name.endswith("_created")
    ]}
    for metric in REGISTRY.collect() if metric.name.startswith("gateway_")
}))
"""
# Label values that come from the catalog, which operators change, and from answers.
OPEN = {
    "gateway_requests": "models and providers",
    "gateway_time_to_first_token_seconds": "providers",
    "gateway_unpriced_requests": "models and providers",
    "gateway_upstream_attempts": "providers",
}
# How many series each of the others has: a counter one for each combination.
SERIES = {
    "gateway_tokens": 4,
    "gateway_guardrail_texts": 2,
    "gateway_guardrail_findings": 55,
    "gateway_guardrail_outside_calls": 32,
    "gateway_offline_decisions": 96,
    "gateway_replica_reads": 2,
    "gateway_replica_unfit": 4,
    "gateway_refused_requests": 6,
    "gateway_closed_connections": 2,
}


@pytest.fixture(scope="module")
def scraped() -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if name != "PROMETHEUS_MULTIPROC_DIR"}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=True, timeout=90)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_every_counter_and_histogram_is_there_at_zero(scraped: dict[str, Any]) -> None:
    counted = {name: metric for name, metric in scraped.items() if metric["type"] in {"counter", "histogram"}}
    assert {name for name, metric in counted.items() if not metric["samples"]} == set(OPEN)
    assert {value for metric in counted.values() for _, _, value in metric["samples"]} == {0.0}


def test_each_combination_of_label_values_has_a_series(scraped: dict[str, Any]) -> None:
    assert {name: len(scraped[name]["samples"]) for name in SERIES} == SERIES
    rules = {one[1]["rule"] for one in scraped["gateway_guardrail_findings"]["samples"]}
    assert {"system:pii_detection", "system:secrets", "custom"} <= rules
    kinds = {one[1]["kind"] for one in scraped["gateway_suspicious_requests"]["samples"]}
    assert {"ForgedForm", "DisallowedHost", "BadRequest", "MultiPartParserError"} <= kinds
    routes = {one[1]["route"] for one in scraped["gateway_request_duration_seconds"]["samples"]}
    assert {"chat_completions", "messages", "responses", "mcp_tool_call"} <= routes

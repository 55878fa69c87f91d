"""Alerts and dashboard against what `/metrics` really shows: each metric they ask for is there, with its labels."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from django.test import Client
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from apps.gateway.metrics import (
    BALANCE_SHEET_DIFFERENCE,
    CLEARING_AGE,
    CLEARING_AMOUNT,
    CLEARING_OVERDUE,
    FIRST_TOKEN,
    OFFLINE_DECISIONS,
    RECONCILED_DIFFERENCES,
    UNPRICED,
)
from apps.gateway.settlement import disk_space
from apps.kernel.postgres.replica import READS
from apps.provider_bills.metrics import BILL_DAYS_ABOVE, BILL_PROBLEM
from gateway_project.configuration.data_directory import PROJECT
from gateway_project.http import client_events
from gateway_project.observability import task_metrics
from tests.support.upstream import Caller, caller, sandbox_url

__all__ = ["caller", "sandbox_url"]
ALERTS = yaml.safe_load((PROJECT / "deploy" / "prometheus" / "alerts.yaml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((PROJECT / "deploy" / "grafana" / "gateway.json").read_text())
METRIC = re.compile(r"\b(gateway_\w+)(?:\{([^}]*)\})?")
PROMETHEUS_WORDS = re.compile(r"\b(?:by|without) \(([^)]*)\)")


def expressions() -> list[str]:
    """Return the queries that Prometheus gets."""
    asked = [rule["expr"] for rule in RULES]
    return asked + [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


@pytest.fixture
def shown(caller: Caller) -> dict[str, set[str]]:
    """The labels of every sample that `/metrics` shows, by its name, once each kind of thing has happened."""
    assert caller.chat().status_code == 200
    disk_space.check_disk_space()
    task_metrics.plan({"logs.roll_up": 300.0})
    client_events.refused("overloaded")
    client_events.hand_over()
    # Events that are too rare to be brought about here.
    for metric, labels in (
        (FIRST_TOKEN, ("sandbox",)),
        (UNPRICED, ("sandbox", "echo")),
        (OFFLINE_DECISIONS, ("timeout", "admitted")),
        (RECONCILED_DIFFERENCES, ("ledger",)),
        (CLEARING_AGE, ("held",)),
        (CLEARING_AMOUNT, ("held",)),
        (CLEARING_OVERDUE, ("held",)),
        (BALANCE_SHEET_DIFFERENCE, ("ledger",)),
        (BILL_PROBLEM, ("openai",)),
        (BILL_DAYS_ABOVE, ("openai",)),
        (READS, ("primary",)),
    ):
        metric.labels(*labels)
    text = Client().get("/metrics").content.decode()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_every_metric_that_is_asked_for_is_shown_with_its_labels(shown: dict[str, set[str]]) -> None:
    for expression in expressions():
        metrics = METRIC.findall(expression)
        assert metrics or "gateway:" in expression, expression
        for name, selectors in metrics:
            assert name in shown, name
            asked = set(re.findall(r"(\w+)[!=]~?=?\"", selectors))
            assert asked <= shown[name], (name, selectors)
        if metrics:
            grouped = {one.strip() for labels in PROMETHEUS_WORDS.findall(expression) for one in labels.split(",")}
            assert grouped <= set().union(*(shown[name] for name, _ in metrics)), expression


def test_recorded_rules_that_are_asked_for_are_recorded() -> None:
    recorded = {rule["record"] for rule in RULES if "record" in rule}
    asked = {name for rule in RULES if "alert" in rule for name in re.findall(r"gateway:[\w:]+", rule["expr"])}
    assert asked == recorded


def test_every_alert_says_how_bad_it_is_and_what_it_means() -> None:
    alerts = [rule for rule in RULES if "alert" in rule]
    assert len({rule["alert"] for rule in alerts}) == len(alerts) > 15
    assert {rule["labels"]["severity"] for rule in alerts} == {"page", "ticket"}
    assert [rule["alert"] for rule in alerts if not rule["annotations"].get("summary")] == []


def test_panels_do_not_overlap_and_have_their_own_ids() -> None:
    panels: list[dict[str, Any]] = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_the_registry_has_no_two_metrics_of_one_name() -> None:
    names = [family.name for family in REGISTRY.collect()]
    assert len(names) == len(set(names))

"""Probes: an answering process is alive; one that can serve is ready, even in an outage of a shared store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import Client

from gateway_project.diagnosis.check import Diagnosis
from gateway_project.observability import health
from gateway_project.processes import draining


@pytest.fixture(autouse=True)
def _not_draining() -> Iterator[None]:
    yield
    draining.end()


def asked(path: str) -> tuple[int, str]:
    """Return the status of a probe, and its word."""
    # As an orchestrator asks: by the machine's address, whatever the product is called.
    answer = Client(headers={"host": "10.1.2.3"}).get(path)
    return answer.status_code, answer.json()["status"]


def test_to_answer_is_to_be_alive() -> None:
    assert asked("/livez") == (200, "alive")


def test_a_node_is_ready_until_it_drains(db: None, capfd: pytest.CaptureFixture[str]) -> None:
    assert asked("/readyz") == (200, "ready")
    assert draining.main(["0"]) == 0
    assert capfd.readouterr().out.startswith("/readyz answers 503 from now on")
    assert asked("/readyz") == (503, "draining")
    assert asked("/livez") == (200, "alive")
    draining.end()
    assert asked("/readyz") == (200, "ready")


@pytest.mark.parametrize("arguments", [["soon"], ["-1"], ["3601"], ["1", "2"]])
def test_drain_wants_a_number_of_seconds(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert draining.main(arguments) == 2
    assert capfd.readouterr().out == "usage: gateway drain [SECONDS], at most 3600\n"
    assert not draining.is_node_draining()


def test_a_process_that_reached_its_stores_once_stays_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    connected, away = False, Diagnosis.error("database", "Not reachable")
    readiness = health._Readiness(lambda: [Diagnosis.ok("redis", "Reachable"), *([] if connected else [away])])
    assert readiness.why_not() == "starting"
    connected = True
    assert readiness.why_not() is None
    connected = False
    assert readiness.why_not() is None
    monkeypatch.setattr(health, "is_any_process_backlogged", lambda: True)
    assert readiness.why_not() == "records"

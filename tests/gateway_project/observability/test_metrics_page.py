"""Scrapes of `/metrics`: those that arrive together share a rendering, and renderings leave time for other requests."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.test import Client

from gateway_project.observability.health import MAX_PAUSE, PacedRendering
from tests.stack.product import eventually


class _Time:
    """A clock that stands still except while `sleep` runs."""

    def __init__(self) -> None:
        self.now, self.slept = 100.0, list[float]()

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 6))
        self.now += seconds


@pytest.mark.parametrize(("takes", "pause"), [(0.02, 0.06), (2.0, MAX_PAUSE)])
def test_a_rendering_waits_three_times_as_long_as_the_last_one_took(takes: float, pause: float) -> None:
    time = _Time()

    def render() -> bytes:
        time.now += takes
        return f"{time.now:.2f}".encode()

    rendering = PacedRendering(render, time.clock, time.sleep)
    assert rendering() == f"{100 + takes:.2f}".encode()
    assert rendering() == f"{100 + 2 * takes + pause:.2f}".encode()
    assert time.slept == [pause]
    time.now += pause
    rendering()
    assert time.slept == [pause]


def test_a_failed_rendering_pauses_too() -> None:
    time, failures = _Time(), [OSError("no file")]

    def render() -> bytes:
        time.now += 0.1
        if failures:
            raise failures.pop()
        return b"metrics"

    rendering = PacedRendering(render, time.clock, time.sleep)
    with pytest.raises(OSError, match="no file"):
        rendering()
    assert rendering() == b"metrics"
    assert time.slept == [0.3]


def test_scrapes_that_arrive_together_share_a_rendering() -> None:
    begun, go_on, found, renderings = threading.Event(), threading.Event(), list[bytes](), list[int]()

    def render() -> bytes:
        renderings.append(1)
        begun.set()
        assert go_on.wait(60)
        return b"metrics"

    rendering = PacedRendering(render)
    threads = [threading.Thread(target=lambda: found.append(rendering())) for _ in range(5)]
    threads[0].start()
    assert begun.wait(20)
    for thread in threads[1:]:
        thread.start()
    eventually(lambda: len(rendering._flights._flights[None]._waiting) == 4)
    go_on.set()
    for thread in threads:
        thread.join(20)
    assert (found, len(renderings)) == ([b"metrics"] * 5, 1)


def test_the_page_is_behind_its_token(db: None, settings: Any) -> None:
    settings.METRICS_TOKEN = "a-token-of-the-scraper"
    for headers in ({}, {"Authorization": "Bearer another"}):
        assert Client(headers=headers).get("/metrics").status_code == 401
    answer = Client(headers={"Authorization": "Bearer a-token-of-the-scraper"}).get("/metrics")
    assert (answer.status_code, answer.headers["Content-Type"].partition(";")[0]) == (200, "text/plain")
    assert b"# TYPE gateway_requests_total counter" in answer.content

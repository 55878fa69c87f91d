"""Health and metrics (section 4.6)."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from django.conf import settings as current
from django.db import connection
from django.test import Client
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from gateway_project.diagnosis import reachability, registry
from gateway_project.diagnosis.check import Check, Diagnosis, Stage


@pytest.fixture
def nowhere() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.fixture
def redis_at(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Point the health check's Redis at another port, with more patience than the check has."""

    def point(port: int) -> None:
        client = Redis(host="127.0.0.1", port=port, socket_timeout=60, retry=Retry(NoBackoff(), 0))
        monkeypatch.setattr(reachability, "servers_of_money", lambda: [client])

    return point


@pytest.fixture
def database_at(settings: Any) -> Iterator[Any]:
    """Point the database at another port, which the health check's own connection is made to."""
    parameters = connection.settings_dict
    host, port, password = parameters["HOST"], parameters["PORT"], parameters["PASSWORD"]

    def point(to: int) -> None:
        parameters.update(HOST="127.0.0.1", PORT=str(to), PASSWORD="hunter2-secret")

    yield point
    parameters.update(HOST=host, PORT=port, PASSWORD=password)


def test_everything_is_well(db: None) -> None:
    response = Client().get("/")
    assert response.status_code == 200
    assert response.json() == {
        "message": "OK",
        "version": current.VERSION,
        "health": {"status": "ok", "redis": {"connected": True}, "database": {"connected": True}},
    }


def test_head_answers_alike_without_a_body(db: None) -> None:
    response = Client().head("/")
    assert (response.status_code, response.content) == (200, b"")


@pytest.mark.parametrize(
    ("skip", "checked"),
    [
        ("redis", {"database"}),
        ("database", {"redis"}),
        ("redis,database", set()),
        (" redis , nonsense", {"database"}),
        ("", {"redis", "database"}),
    ],
)
def test_skip_leaves_checks_out_and_ignores_unknown_words(db: None, skip: str, checked: set[str]) -> None:
    response = Client().get("/", {"skip": skip})
    assert response.status_code == 200
    assert set(response.json()["health"]) == {"status", *checked}


def test_a_store_that_is_away_is_503_and_named(db: None, redis_at: Any) -> None:
    redis_at(1)
    response = Client().get("/")
    assert response.status_code == 503
    assert response.json() == {
        "message": "Failed: redis",
        "version": current.VERSION,
        "health": {
            "status": "error",
            "redis": {"connected": False, "error": "Not reachable"},
            "database": {"connected": True},
        },
    }
    assert Client().get("/?skip=redis").status_code == 200


def test_a_cache_that_is_away_is_told_of_and_fails_nothing(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachability, "cache_servers", lambda: [Redis(port=1, socket_connect_timeout=0.1)])
    response = Client().get("/")
    assert (response.status_code, response.json()["message"]) == (200, "OK")
    warning = {"connected": True, "warning": "Not reachable: answers are not kept"}
    assert response.json()["health"]["cache"] == warning
    assert "cache" not in Client().get("/?skip=cache").json()["health"]


def test_stores_that_hang_are_503_within_bounded_time(db: None, nowhere: int, redis_at: Any, database_at: Any) -> None:
    redis_at(nowhere)
    database_at(nowhere)
    begun = time.monotonic()
    response = Client().get("/")
    assert time.monotonic() - begun < 30
    assert response.status_code == 503
    assert response.json()["message"] == "Failed: redis, database"
    assert all(not response.json()["health"][name]["connected"] for name in ("redis", "database"))


def replace_checks(monkeypatch: pytest.MonkeyPatch, **finds: Callable[[], Iterable[Diagnosis]]) -> None:
    """Have checks of health made by these functions, by name."""

    def change(check: Check) -> Check:
        is_meant = Stage.HEALTH in check.stages and check.name in finds
        return replace(check, find=finds[check.name]) if is_meant else check

    monkeypatch.setattr(registry, "CHECKS", tuple(map(change, registry.CHECKS)))


class TestManyAskers:
    """`GET /` takes no key: what it costs the stores must not depend on how many ask."""

    @pytest.fixture
    def checked(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The checks that were really made, in order."""
        made: list[str] = []
        stores = {one.name: one for one in registry.checks_of(Stage.HEALTH) if one.is_remote and not one.optional}

        def count(check: Check) -> Iterable[Diagnosis]:
            made.append(check.name)
            return check.find()

        replace_checks(monkeypatch, **{name: partial(count, one) for name, one in stores.items()})
        return made

    def test_concurrent_askers_share_one_check(
        self, db: None, checked: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # A request that comes after the check has ended gets its result, however slow the machine is.
        monkeypatch.setattr(reachability, "REUSED", 600.0)
        together = threading.Barrier(50)

        def ask(_: int) -> tuple[int, Any]:
            together.wait()
            response = Client().get("/")
            return response.status_code, response.json()["health"]

        with ThreadPoolExecutor(50) as pool:
            answers = list(pool.map(ask, range(50)))
        well = {"status": "ok", "redis": {"connected": True}, "database": {"connected": True}}
        assert answers == [(200, well)] * 50
        assert sorted(checked) == ["database", "redis"]

    def test_a_caller_joins_the_check_that_is_under_way(self, monkeypatch: pytest.MonkeyPatch) -> None:
        answer, made = threading.Event(), []

        def slow() -> list[Diagnosis]:
            made.append(1)
            assert answer.wait(60)
            return []

        monkeypatch.setattr(reachability, "REUSED", 0.0)
        check = Check("database", Stage.HEALTH, slow)
        first = reachability.SHARED_RUNS.current(check)
        assert reachability.SHARED_RUNS.current(check) is first
        answer.set()
        first.join()
        assert first.wait() == []
        assert made == [1]

    def test_a_result_is_asked_for_again_after_its_time(
        self, db: None, checked: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reachability, "REUSED", 0.0)
        for _ in range(2):
            assert Client().get("/").status_code == 200
        assert sorted(checked) == ["database", "database", "redis", "redis"]

    def test_a_failure_is_shared_and_a_skipped_check_is_not_made(
        self, db: None, checked: list[str], redis_at: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reachability, "REUSED", 600.0)
        redis_at(1)
        assert [Client().get("/").status_code for _ in range(3)] == [503, 503, 503]
        assert Client().get("/", {"skip": "redis"}).status_code == 200
        assert sorted(checked) == ["database", "redis"]

    def test_a_store_that_hangs_has_one_check_however_many_ask(self, db: None, monkeypatch: pytest.MonkeyPatch) -> None:
        answer, made = threading.Event(), []

        def hang() -> list[Diagnosis]:
            made.append(1)
            answer.wait(60)
            return []

        monkeypatch.setattr(reachability, "PATIENCE", 0.05)
        replace_checks(monkeypatch, database=hang)
        for _ in range(3):
            response = Client().get("/", {"skip": "redis"})
            assert response.status_code == 503
            error = {"connected": False, "error": "No answer within 0.05 seconds"}
            assert response.json()["health"]["database"] == error
        assert made == [1]
        answer.set()


def test_a_failure_tells_nothing_of_the_configuration(db: None, database_at: Any) -> None:
    database_at(1)
    response = Client().get("/")
    assert response.status_code == 503
    assert response.json()["health"]["database"] == {"connected": False, "error": "Not reachable"}
    for secret in (b"hunter2", b"127.0.0.1", b"postgres", current.SECRET_KEY.encode()):
        assert secret not in response.content


def test_no_check_is_left_behind_when_all_is_well(db: None) -> None:
    before = set(threading.enumerate())
    Client().get("/")
    assert set(threading.enumerate()) <= before


def test_metrics_are_for_prometheus(db: None) -> None:
    Client().get("/")
    response = Client().get("/metrics")
    assert response.status_code == 200
    assert response["Content-Type"].startswith("text/plain")
    assert b"django_http_requests_total_by_method_total" in response.content


def test_metrics_can_ask_for_a_token(db: None, settings: Any) -> None:
    settings.METRICS_TOKEN = "scrape-me"
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Bearer"}, {"authorization": "scrape-me"}):
        response = Client().get("/metrics", headers=headers)
        assert response.status_code == 401
        assert response.json() == {"error": True, "status": 401, "message": "Missing or invalid metrics token"}
    assert Client().get("/metrics", headers={"authorization": "Bearer scrape-me"}).status_code == 200

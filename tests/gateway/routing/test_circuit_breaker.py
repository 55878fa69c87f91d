"""The scoreboard: what one worker sees all workers know within a sync, over a real Valkey; circuits open and close."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from apps.gateway.routing import circuit_breaker
from apps.gateway.routing.circuit_breaker import (
    FIRST_PROBE_PAUSE,
    MAX_PROBE_PAUSE,
    NO_TRAFFIC,
    OPEN_AFTER,
    WINDOW_SECONDS,
    CircuitBreakers,
    FailureEvidence,
    OutcomeCounts,
    ProviderStats,
    compute_stats,
)
from apps.kernel.ids import new_id

FOX = "acme/fox-1"


class Clock:
    """The time that scoreboards go by."""

    def __init__(self) -> None:
        self.now = 1_800_000_003.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(circuit_breaker, "time", clock)
    return clock


def answer(board: CircuitBreakers, times: int = 1, first_token_ms: int | None = 200) -> None:
    for _ in range(times):
        board.record_success(FOX, first_token_ms=first_token_ms, tokens=100, seconds=2.0)


def test_nobody_asked_stands_well() -> None:
    assert CircuitBreakers().stats(FOX) == NO_TRAFFIC == ProviderStats(requests=0, uptime=100.0)


def test_what_one_worker_saw_all_know_after_a_sync(clock: Clock) -> None:
    one, other = CircuitBreakers(), CircuitBreakers()
    answer(one, 3)
    one.record_failure(FOX)
    one.sync()
    other.sync()
    assert other.stats(FOX) == ProviderStats(requests=4, fresh_requests=4, uptime=75.0, latency=200.0, throughput=50.0)
    answer(other, 4)
    other.sync()
    one.sync()
    assert (one.stats(FOX).requests, one.stats(FOX).uptime) == (8, 87.5)


def test_what_is_older_than_five_minutes_is_forgotten(clock: Clock) -> None:
    one = CircuitBreakers()
    one.record_failure(FOX)
    one.sync()
    clock.now += WINDOW_SECONDS / 2
    answer(one)
    one.sync()
    assert (one.stats(FOX).requests, one.stats(FOX).uptime) == (2, 50.0)
    clock.now += WINDOW_SECONDS / 2 + circuit_breaker.BUCKET_SECONDS
    one.sync()
    assert (one.stats(FOX).requests, one.stats(FOX).uptime) == (1, 100.0)
    clock.now += WINDOW_SECONDS
    one.sync()
    assert one.stats(FOX) == NO_TRAFFIC


def test_a_worker_that_starts_late_knows_the_whole_window(clock: Clock) -> None:
    one = CircuitBreakers()
    for _ in range(20):
        answer(one)
        one.sync()
        clock.now += circuit_breaker.BUCKET_SECONDS
    late = CircuitBreakers()
    late.sync()
    assert late.stats(FOX).requests == 20


def test_while_valkey_is_away_nothing_that_was_seen_is_lost(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    one = CircuitBreakers()
    answer(one, 2)
    with monkeypatch.context() as patch:

        def away() -> Any:
            raise RedisConnectionError("away")

        patch.setattr(circuit_breaker, "client", away)
        with pytest.raises(RedisConnectionError):
            one.sync()
    one.sync()
    assert one.stats(FOX).requests == 2


class TestCircuits:
    @pytest.fixture
    def board(self, clock: Clock) -> CircuitBreakers:
        """A scoreboard with an open circuit."""
        board = CircuitBreakers()
        for _ in range(OPEN_AFTER):
            board.record_failure(FOX)
        return board

    def test_it_opens_at_once_where_it_is_seen_and_elsewhere_after_a_sync(self, board: CircuitBreakers) -> None:
        assert (board.stats(FOX).open, board.stats(FOX).probe_due) == (True, False)
        other = CircuitBreakers()
        other.sync()
        assert not other.stats(FOX).open
        board.sync()
        other.sync()
        assert other.stats(FOX).open

    def test_a_few_failures_among_many_answers_open_nothing(self, clock: Clock) -> None:
        board = CircuitBreakers()
        for _ in range(OPEN_AFTER):
            answer(board, 2)
            board.record_failure(FOX)
        assert not board.stats(FOX).open
        for _ in range(OPEN_AFTER - 1):
            board.record_failure(FOX)
            answer(board)
        assert not board.stats(FOX).open

    def test_failures_in_a_row_open_it_after_however_many_answers(self, clock: Clock) -> None:
        board = CircuitBreakers()
        answer(board, 1_000)
        for _ in range(OPEN_AFTER - 1):
            board.record_failure(FOX)
        assert not board.stats(FOX).open
        board.record_failure(FOX)
        assert board.stats(FOX).open

    def test_half_of_them_failing_opens_it(self, clock: Clock) -> None:
        board = CircuitBreakers()
        for _ in range(OPEN_AFTER):
            answer(board)
            board.record_failure(FOX)
        assert board.stats(FOX).open

    def test_failures_that_several_workers_saw_open_it_together(self, clock: Clock) -> None:
        boards = [CircuitBreakers() for _ in range(OPEN_AFTER)]
        for board in boards:
            board.record_failure(FOX)
            board.sync()
        assert boards[-1].stats(FOX).open

    def test_one_request_is_let_through_after_a_while_and_no_second_beside_it(
        self, board: CircuitBreakers, clock: Clock
    ) -> None:
        clock.now += FIRST_PROBE_PAUSE
        assert board.stats(FOX).probe_due
        board.start_probe(FOX)
        assert not board.stats(FOX).probe_due

    def test_a_success_closes_it_everywhere_and_old_failures_are_forgiven(
        self, board: CircuitBreakers, clock: Clock
    ) -> None:
        other = CircuitBreakers()
        board.sync()
        other.sync()
        clock.now += FIRST_PROBE_PAUSE
        answer(board)
        assert not board.stats(FOX).open
        board.sync()
        other.sync()
        assert not other.stats(FOX).open
        for one in (board, other):
            one.record_failure(FOX)
            one.sync()
            assert not one.stats(FOX).open

    def test_a_trial_that_fails_makes_the_next_one_wait_longer(self, board: CircuitBreakers, clock: Clock) -> None:
        waits = []
        for _ in range(4):
            since = clock.now
            while not board.stats(FOX).probe_due:
                clock.now += 0.5
            waits.append(clock.now - since)
            board.start_probe(FOX)
            board.record_failure(FOX)
            board.sync()
        assert waits == [FIRST_PROBE_PAUSE, 2 * FIRST_PROBE_PAUSE, MAX_PROBE_PAUSE, MAX_PROBE_PAUSE]

    def test_one_that_nobody_tries_any_more_is_forgotten(self, board: CircuitBreakers, clock: Clock) -> None:
        board.sync()
        clock.now += WINDOW_SECONDS + FIRST_PROBE_PAUSE + 1
        board.sync()
        assert board.stats(FOX) == NO_TRAFFIC


class TestStandings:
    def test_late_is_later_than_nineteen_of_twenty(self) -> None:
        counts = OutcomeCounts()
        for _ in range(19):
            counts.add_success(90, 0, 0)
        assert compute_stats(counts).p95_latency is None, "too few to tell"
        counts.add_success(5_001, 0, 0)
        assert compute_stats(counts).p95_latency == 100.0
        counts.add_success(5_001, 0, 0)
        assert compute_stats(counts).p95_latency == 8_000.0

    def test_answers_that_do_not_stream_say_nothing_of_the_first_token(self) -> None:
        counts = OutcomeCounts()
        counts.add_success(None, 50, 0.5)
        assert compute_stats(counts) == ProviderStats(requests=1, uptime=100.0, throughput=100.0)

    def test_counts_are_told_and_heard_the_same(self) -> None:
        counts, heard = OutcomeCounts(), OutcomeCounts()
        counts.add_success(123, 45, 0.678)
        counts.failed = 2
        for name, number in counts.nonzero_fields():
            heard.add_field(name, number)
        heard.add_field("of a later version", 5)
        assert heard == counts


def test_a_failure_that_nothing_proves_opens_no_circuit_and_all_see_it(clock: Clock) -> None:
    here, there = CircuitBreakers(), CircuitBreakers()
    answer(here, 3)
    for _ in range(10 * OPEN_AFTER):
        here.record_unproven_failure(FOX)
    here.sync()
    there.sync()
    for board in (here, there):
        seen = board.stats(FOX)
        assert (seen.requests, seen.fresh_requests, seen.uptime, seen.open) == (53, 53, 100 * 3 / 53, False)


class TestBlame:
    @pytest.fixture
    def failures(self, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The mappings whose failures were counted."""
        counted: list[str] = []
        board = {
            "record_failure": staticmethod(counted.append),
            "record_unproven_failure": staticmethod(lambda mapping: None),
        }
        monkeypatch.setattr(circuit_breaker, "CIRCUIT_BREAKERS", type("Board", (), board))
        circuit_breaker._counted.clear()
        return counted

    def test_a_request_that_another_answered_proves_the_failure(self, failures: list[str]) -> None:
        organization = new_id()
        for _ in range(10):
            circuit_breaker.record_failures(
                [FailureEvidence(FOX, certain=False)], answered=True, organization_id=organization
            )
        assert failures == [FOX] * 10

    def test_one_tenant_alone_proves_nothing(self, failures: list[str], clock: Clock) -> None:
        organization = new_id()
        for _ in range(3):
            for _ in range(10):
                circuit_breaker.record_failures(
                    [FailureEvidence(FOX, certain=False)], answered=False, organization_id=organization
                )
            clock.now += 60
        assert failures == []

    def test_of_several_each_adds_only_a_few_a_minute(self, failures: list[str], clock: Clock) -> None:
        def fail(organization: UUID) -> int:
            before = len(failures)
            for _ in range(10):
                circuit_breaker.record_failures(
                    [FailureEvidence(FOX, certain=False)], answered=False, organization_id=organization
                )
            return len(failures) - before

        first, second = new_id(), new_id()
        assert [fail(first), fail(second), fail(first)] == [0, 3, 0]
        clock.now += 60
        assert [fail(second), fail(first), fail(second)] == [0, 3, 0]

    def test_a_broken_connection_is_nobody_elses_doing(self, failures: list[str]) -> None:
        organization = new_id()
        for _ in range(10):
            circuit_breaker.record_failures(
                [FailureEvidence(FOX, certain=True)], answered=False, organization_id=organization
            )
        assert len(failures) == 10

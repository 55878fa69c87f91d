"""Attempts of a request as a waterfall: places of bars, times in words, and why each further call was made."""

from __future__ import annotations

from typing import Any

import pytest

from apps.logs.attempts import AttemptBar, bar_of, waterfall_of


def line(provider: str, start: int | None = None, end: int | None = None, **fields: Any) -> dict[str, Any]:
    times = {} if start is None else {"start_ms": start, "end_ms": end}
    usual = {"provider": provider, "model": "m", "used_model": "m", "status_code": 200, "error_type": "none"}
    return {**usual, "succeeded": True, **times, **fields}


FAILED = {"succeeded": False, "status_code": 503, "error_type": "upstream_error"}


def test_attempts_are_bars_of_the_request_with_their_times() -> None:
    routing = {
        "routing": [
            line("azure", 50, 300, connect_start_ms=100, **FAILED),
            line(
                *("openai", 400, 1000),
                connect_start_ms=410,
                connect_end_ms=440,
                first_byte_ms=500,
                first_content_ms=600,
            ),
        ],
        "providerScores": [{"providerId": "openai", "score": 0.934}],
    }
    found = waterfall_of(routing, 1000)
    assert found.before == "50 ms"
    failed, answered = found.attempts
    assert (failed.state, failed.outcome, failed.reason, failed.score) == (
        "bad",
        "failed, HTTP 503, upstream error",
        "",
        "\N{EN DASH}",
    )
    assert (failed.times, failed.bar) == (
        "called at 50 ms, took 250 ms",
        AttemptBar("5.00%", "25.00%", "30.00%", "0.00%", connect="10.00%", connecting="20.00%"),
    )
    assert (answered.state, answered.outcome, answered.score) == ("ok", "answered, HTTP 200", "0.93")
    assert answered.reason == "Fallback: azure failed, HTTP 503, upstream error"
    assert (answered.times, answered.bar) == (
        "called at 400 ms, connected in 30 ms, first byte after 100 ms, first content after 200 ms, took 600 ms",
        AttemptBar("40.00%", "20.00%", "60.00%", "40.00%", connect="41.00%", connecting="3.00%"),
    )


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (line("azure", 400, 900), "Retry: azure failed, HTTP 503, upstream error"),
        (line("openai", 400, 900), "Fallback: azure failed, HTTP 503, upstream error"),
        (line("openai", 400, 900, used_model="n"), "Fallback model: azure failed, HTTP 503, upstream error"),
        (line("openai", 200, 900), "Hedge: azure had not answered yet"),
        (line("azure", 400, 900, choice=1), ""),
    ],
)
def test_a_further_attempt_states_its_reason(second: dict[str, Any], reason: str) -> None:
    found = waterfall_of({"routing": [line("azure", 5, 300, **FAILED), second]}, 900)
    assert [one.reason for one in found.attempts] == ["", reason]


def test_a_hedge_stands_after_the_call_that_it_overtook() -> None:
    lost = {"succeeded": False, "status_code": None, "error_type": "hedge_lost"}
    routing = {"routing": [line("slow", 0, 800, **lost), line("fast", 500, 900)]}
    assert [(one.provider, one.state) for one in waterfall_of(routing, 900).attempts] == [
        ("slow", "slower"),
        ("fast", "ok"),
    ]
    swapped = {"routing": [line("late", 500, 800, **lost), line("first", 0, 900)]}
    assert [one.provider for one in waterfall_of(swapped, 900).attempts] == ["first", "late"]


def test_a_call_that_the_client_left_is_neither_good_nor_bad() -> None:
    canceled = {"succeeded": False, "status_code": None, "error_type": "canceled"}
    [attempt] = waterfall_of({"routing": [line("openai", 4, 90, **canceled)]}, 90).attempts
    assert (attempt.state, attempt.outcome) == ("slower", "closed, the client left")


@pytest.mark.parametrize("routing", [{}, {"routing": "odd"}, {"routing": [1, None]}])
def test_nothing_stored_is_no_attempt(routing: dict[str, Any]) -> None:
    found = waterfall_of(routing, 5)
    assert (found.attempts, found.before) == ([], "")


@pytest.mark.parametrize("times", [{}, {"start_ms": "x", "end_ms": 3}, {"start_ms": 1}])
def test_attempts_of_older_rows_have_no_bars(times: dict[str, Any]) -> None:
    found = waterfall_of({"routing": [line("azure", **FAILED), {**line("openai"), **times}]}, 900)
    assert [(one.provider, one.bar, one.times) for one in found.attempts] == [
        ("azure", None, ""),
        ("openai", None, ""),
    ]
    assert [one.reason for one in found.attempts] == ["", "Fallback: azure failed, HTTP 503, upstream error"]


def test_a_bar_stays_within_its_call() -> None:
    assert bar_of(10, 500, 40, 100) == AttemptBar("10.00%", "30.00%", "40.00%", "0.00%")
    assert bar_of(0, None, 0, 0) == AttemptBar("0%", "0%", "0%", "0%")


def test_a_short_call_in_a_long_request_has_a_bar_that_is_seen() -> None:
    assert bar_of(34_860, None, 34_870, 34_870) == AttemptBar("99.50%", "0.50%", "100.00%", "0.00%")
    assert bar_of(0, 30, 40, 100_000) == AttemptBar("0.00%", "0.38%", "0.38%", "0.12%")
    assert bar_of(500, None, 500, 1_000) == AttemptBar("50.00%", "0.50%", "50.50%", "0.00%")

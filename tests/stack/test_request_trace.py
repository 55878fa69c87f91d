"""How much of the product's code a warm request runs: growth is seen on the day it comes."""

from __future__ import annotations

import pytest

from bench import request_trace

pytestmark = pytest.mark.stack

# Calls of Python functions and files that these are in, as docs/performance.md states them. A change that needs more
# says why, and states it there.
CALLS = {"chat completion": 452, "messages, streamed": 1_308, "chat completion, ten limits": 457}
FILES = {"chat completion": 69, "messages, streamed": 75, "chat completion, ten limits": 70}


def test_a_warm_request_makes_no_more_calls_than_documented_and_three_percent() -> None:
    rows = {row["name"]: row for row in request_trace.trace()}
    assert rows.keys() == CALLS.keys()
    too_many = {name: row["calls"] for name, row in rows.items() if row["calls"] > CALLS[name] * 1.03}
    assert not too_many, f"{too_many} calls instead of {CALLS}: bench/request_trace.py lists the files"
    spread = {name: len(row["files"]) for name, row in rows.items() if len(row["files"]) > FILES[name]}
    assert not spread, f"{spread} files instead of {FILES}: merge what a request passes for a line or two"
    # A count that fell far shows that the script no longer counts everything, or that the figures are old.
    too_few = {name: row["calls"] for name, row in rows.items() if row["calls"] < CALLS[name] * 0.9}
    assert not too_few, f"{too_few} calls instead of {CALLS}: state the new figures here and in docs/performance.md"

"""The pace of lines: halved where a limit was met, faster again with each answer, and never below one."""

from __future__ import annotations

from uuid import uuid4

from apps.batches.line_runs import LinePace


def test_a_key_is_slowed_by_refusals_and_quickens_with_answers() -> None:
    pace, key = LinePace(), uuid4()
    assert pace.most(key, 16) == 16
    pace.refused(key, 16)
    assert (pace.most(key, 16), pace.most(uuid4(), 16)) == (8, 16)
    for _ in range(5):
        pace.refused(key, 16)
    assert pace.most(key, 16) == 1
    pace.answered(key, 16)
    assert pace.most(key, 16) == 2
    for _ in range(200):
        pace.answered(key, 16)
    assert pace.most(key, 16) == 16
    assert pace.most(key, 4) == 4

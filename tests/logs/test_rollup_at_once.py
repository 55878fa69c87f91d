"""Rolling up: each row counts once, whatever a record says, while others write, fold and read at the same time."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from threading import Barrier, Event

import pytest
from django.db import connection
from msgspec.structs import replace

from apps.kernel.ids import new_id
from apps.kernel.money import LARGEST
from apps.logs import rollup
from apps.logs.activity import ActivityScope, find_days, window_of
from apps.logs.models import ActivityDelta
from tests.logs.entries import entry, write


@pytest.mark.django_db
@pytest.mark.parametrize("folded", [False, True])
def test_a_workers_own_word_counts_instead_of_the_sweepers(folded: bool) -> None:
    owner = {"organization_id": new_id(), "project_id": new_id(), "api_key_id": new_id()}
    own = entry(cost=Decimal("0.5"), has_error=False, used_model="claude", **owner)
    swept = replace(own, cost=None, has_error=True, used_model="", swept=True)
    for word in (swept, swept, own, swept, own):
        write(word)
        if folded:
            rollup.roll_up()
    [day] = find_days(ActivityScope(frozenset({owner["organization_id"]})), window_of(datetime.now(UTC), days=2))
    assert (day.sums["request_count"], day.sums["error_count"], day.sums["cost"]) == ("1", "0", "0.5")
    assert [(one["id"], one["requestCount"]) for one in json.loads(day.models)] == [("claude", 1)]


@pytest.mark.django_db(transaction=True)
def test_folds_at_once_while_rows_come_count_each_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollup, "BATCH", 7)
    owner = {"organization_id": new_id(), "project_id": new_id(), "api_key_id": new_id()}
    scope, window = ActivityScope(frozenset({owner["organization_id"]})), window_of(datetime.now(UTC), days=2)
    start, written = Barrier(4), Event()

    def work(act: Callable[[], object]) -> None:
        start.wait()
        try:
            act()
        finally:
            connection.close()

    def settle() -> None:
        try:
            for _ in range(60):
                write(*(entry(used_model=f"model-{number % 3}", cost=Decimal("0.1"), **owner) for number in range(5)))
        finally:
            written.set()

    def fold() -> None:
        while not written.is_set():
            rollup.roll_up()

    seen: list[int] = []

    def look() -> None:
        while not written.is_set():
            seen.extend(int(day.sums["request_count"]) for day in find_days(scope, window))

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, act) for act in (settle, fold, fold, look)]:
            done.result()
    rollup.roll_up()
    assert ActivityDelta.objects.count() == 0
    assert seen == sorted(seen)
    assert {one % 5 for one in seen} <= {0}
    [today] = find_days(scope, window)
    assert (today.sums["request_count"], today.sums["cost"]) == ("300", "30")


@pytest.mark.django_db
def test_absurd_numbers_of_one_request_hold_up_no_other() -> None:
    owner = {"organization_id": new_id(), "project_id": new_id(), "api_key_id": new_id()}
    absurd = {"prompt_tokens": 2**63 - 1, "cost": LARGEST, "data_storage_cost": LARGEST}
    for _ in range(2):
        write(entry(**owner, **absurd), entry(**owner, **absurd))
        assert rollup.roll_up() == 1
    [day] = find_days(ActivityScope(frozenset({owner["organization_id"]})), window_of(datetime.now(UTC), days=2))
    assert (day.sums["request_count"], day.sums["input_tokens"]) == ("4", str(2**63 - 1))
    assert Decimal(day.sums["cost"]) == LARGEST

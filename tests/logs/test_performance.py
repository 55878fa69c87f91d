"""Performance equals a recount of the outcomes of written entries, folded or not; slots expire by their length."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import isclose

import msgspec
import pytest
from django.db import transaction

from apps.logs import performance, writer
from apps.logs.entry import ProviderOutcome
from apps.logs.models import PerformanceDelta, PerformanceSlot
from apps.logs.performance import WINDOWS, Performance, ProviderPerformance, read_performance
from tests.logs.entries import ago, entry, id_at, write

pytestmark = pytest.mark.django_db

OK = ProviderOutcome(model="gpt-5", provider="openai", succeeded=True, first_token=400, tokens=100, writing=2000)
FAILED = ProviderOutcome(model="gpt-5", provider="azure", succeeded=False)


def read(window: str = "24h", *models: str, now: datetime | None = None) -> dict[str, dict[str, ProviderPerformance]]:
    return read_performance(models or ("gpt-5",), WINDOWS[window], now or datetime.now(UTC))


def totals(window: str = "24h", now: datetime | None = None) -> dict[str, tuple[int, int]]:
    found = read(window, now=now).get("gpt-5", {})
    return {provider: (one.total.succeeded, one.total.failed) for provider, one in found.items()}


def test_outcomes_are_counted_before_and_after_the_fold() -> None:
    other = ProviderOutcome(model="claude", provider="anthropic", succeeded=True)
    write(
        entry(outcomes=[FAILED, OK]),
        entry(outcomes=[OK]),
        entry(outcomes=[other]),
        entry(),
    )
    before = read("24h", "gpt-5", "claude", "unknown")
    assert set(before) == {"gpt-5", "claude"}
    assert totals() == {"azure": (0, 1), "openai": (2, 0)}
    [bar] = before["gpt-5"]["openai"].bars.values()
    assert bar == before["gpt-5"]["openai"].total
    assert (sum(bar.first_tokens.values()), sum(bar.speeds.values())) == (2, 2)
    assert (before["gpt-5"]["azure"].total.uptime, bar.uptime) == (0, 1)
    assert (before["claude"]["anthropic"].total.first_token, before["claude"]["anthropic"].total.speed) == (None, None)

    assert performance.fold() == 3
    assert PerformanceDelta.objects.count() == 0
    assert read("24h", "gpt-5", "claude", "unknown") == before
    write(entry(outcomes=[OK]))
    assert performance.fold() == 1
    assert totals() == totals("7d") == totals("30d") == {"azure": (0, 1), "openai": (3, 0)}


def test_an_entry_counts_once_and_only_with_its_row() -> None:
    own = entry(outcomes=[OK])
    write(msgspec.structs.replace(own, swept=True, outcomes=None))
    assert totals() == {}
    write(own)
    write(own)
    with transaction.atomic():
        writer.write([entry(outcomes=[OK])])
        transaction.set_rollback(True)
    assert totals() == {"openai": (1, 0)}


def test_medians_are_right_to_a_tenth_and_values_beyond_the_scale_count_at_its_ends() -> None:
    answers = [
        ProviderOutcome(model="gpt-5", provider="openai", succeeded=True, first_token=ms, tokens=ms, writing=1000)
        for ms in range(100, 1100, 10)
    ]
    write(entry(outcomes=answers))
    total = read()["gpt-5"]["openai"].total
    for found, exact in ((total.first_token, 600), (total.slow_first_token, 1050), (total.speed, 600)):
        assert found is not None
        assert isclose(found, exact, rel_tol=0.1)
    extremes = [
        ProviderOutcome(model="slow", provider="openai", succeeded=True, first_token=ms, tokens=tokens, writing=1)
        for ms, tokens in ((0, 10**9), (10**9, 1))
    ]
    write(entry(outcomes=extremes))
    slow = read("24h", "slow")["slow"]["openai"].total
    assert (sorted(slow.first_tokens), sorted(slow.speeds)) == ([16, 67], [39, 47])


def test_windows_have_their_own_slots_which_expire() -> None:
    now = datetime.now(UTC)
    for moment in (now, now - timedelta(days=3), now - timedelta(days=20), now - timedelta(days=100)):
        write(entry(id=id_at(moment), outcomes=[OK]))
    performance.fold()
    assert [totals(name, now) for name in WINDOWS] == [{"openai": (1, 0)}, {"openai": (2, 0)}, {"openai": (3, 0)}]
    assert performance.expire(now) == 3
    lengths = PerformanceSlot.objects.order_by("minutes", "starts_at").values_list("minutes", flat=True)
    assert list(lengths) == [60, 60, 1440, 1440, 1440]
    assert [totals(name, now) for name in WINDOWS] == [{"openai": (1, 0)}, {"openai": (2, 0)}, {"openai": (3, 0)}]


def test_outcomes_count_in_the_hour_of_their_request() -> None:
    moment = ago(hours=5)
    write(entry(id=id_at(moment), outcomes=[OK]))
    assert PerformanceDelta.objects.get().starts_at == moment.replace(minute=0, second=0, microsecond=0)
    assert Performance().uptime is None

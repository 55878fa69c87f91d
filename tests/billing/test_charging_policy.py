"""The cost of a request by how it ended: the written policy (docs/billing.md), clause by clause, with real requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from django.db.models import Sum

from apps.billing.models import LedgerEntry
from apps.billing.pricing import Bill, cost_by
from apps.catalog.models import ModelProvider
from apps.gateway import metrics
from apps.gateway.canonical.events import Event
from apps.gateway.metrics import UNPRICED
from apps.gateway.upstream.failover import Failover
from apps.kernel.errors import ClientGone
from apps.kernel.valkey import generation
from apps.logs.models import RequestLog
from apps.organizations.models import Organization, Project
from tests.support.upstream import Caller, chunks_of, settle_all

# `sandbox/echo`: 0.15 USD per million prompt tokens, 0.6 for completions, 0.075 from a cache.
PAID = "hi [[sandbox usage=1000,200]]"
COST = Decimal("0.00027")


def logged(caller: Caller, count: int = 1) -> RequestLog:
    """Settle; assert that rows, ledger and balances say the same; return the last row."""
    settle_all()
    rows = list(RequestLog.objects.order_by("id"))
    assert len(rows) == count
    total = sum((row.cost or Decimal(0) for row in rows), Decimal(0))
    charged = LedgerEntry.objects.filter(kind="usage").aggregate(credits=Sum("credits"), usage=Sum("usage"))
    assert (charged["usage"] or 0) == total
    assert Organization.objects.get(pk=caller.organization_id).credits == 100 + (charged["credits"] or 0)
    for row in rows:
        assert cost_by(msgspec.convert(row.prices, Bill, strict=False)).total == row.cost
    return rows[-1]


def priced(prices: dict[str, Any], **scope: Any) -> None:
    """Give the sandbox's mappings other prices, at once."""
    ModelProvider.objects.filter(provider_id="sandbox", **scope).update(prices=prices)
    generation.bump(generation.CATALOG)


@pytest.mark.parametrize("stream", [False, True])
def test_a_completed_answer_pays_what_the_provider_counted(caller: Caller, stream: bool) -> None:
    answer = caller.chat(PAID, stream=stream)
    if stream:
        chunks_of(answer)
    else:
        assert "estimated_cost" not in answer.json()["metadata"]
    row = logged(caller)
    assert (row.cost, row.estimated_cost, row.unified_finish_reason) == (COST, False, "completed")
    assert (row.input_cost, row.output_cost) == (Decimal("0.00015"), Decimal("0.00012"))
    assert row.prices["used"] == {"input": 1000, "output": 200}


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_an_answer_that_was_cut_short_is_an_answer(caller: Caller, finish: str) -> None:
    caller.chat(f"hi [[sandbox usage=1000,200 finish={finish}]]")
    assert logged(caller).cost == COST


def test_an_empty_answer_is_free_whatever_was_read(caller: Caller) -> None:
    caller.chat("hi [[sandbox empty usage=1000,0]]")
    row = logged(caller)
    assert (row.cost, row.prompt_tokens, row.prices["waived"]) == (0, 1000, "empty")


def test_thinking_alone_is_an_answer(caller: Caller) -> None:
    """Completion tokens were counted, so the provider will bill them."""
    caller.chat("hi [[sandbox empty usage=1000,200,0,200]]")
    assert logged(caller).cost == COST


FAILURES = ["status=500", "status=429", "hang=head", "reset=body", "html status=502"]


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_provider_is_free(caller: Caller, failure: str, settings: Any) -> None:
    settings.UPSTREAM_FIRST_BYTE_TIMEOUT = 0.3
    assert caller.chat(f"hi [[sandbox {failure} usage=1000,200]]").status_code >= 400
    row = logged(caller)
    assert (row.cost, row.total_tokens, row.prices["waived"]) == (0, 0, "failed")
    assert (row.has_error, row.unpriced) == (True, False)


@pytest.mark.parametrize("failure", ["reset=middle", "error=middle", "broken=middle"])
def test_a_provider_that_fails_in_the_middle_is_free(caller: Caller, failure: str) -> None:
    """The client has seen half an answer and an error."""
    chunks_of(caller.chat(f"one two three four five six [[sandbox {failure}]]", stream=True))
    row = logged(caller)
    assert (row.cost, row.has_error, row.unified_finish_reason) == (0, True, "upstream_error")


def test_a_fallback_pays_only_who_answered(caller: Caller, backup: str) -> None:
    answer = caller.chat(f"{PAID} [[sandbox status=500 times=1 tag=fallback]]", model="echo").json()
    assert answer["metadata"]["used_provider"] == backup
    row = logged(caller)
    assert (row.used_provider, row.cost) == (backup, Decimal("0.0027"))


def test_who_leaves_before_anything_was_written_pays_nothing(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def left(_: Failover) -> Iterator[Event]:
        raise ClientGone("The client closed the connection")
        yield

    monkeypatch.setattr(Failover, "run", left)
    assert caller.chat(PAID).status_code == 499
    row = logged(caller)
    assert (row.canceled, row.has_error, row.cost, row.prices["waived"]) == (True, False, 0, "failed")


def test_who_leaves_in_the_middle_pays_what_was_produced_as_an_estimate(caller: Caller) -> None:
    stream = caller.chat("one two three four five six seven eight [[sandbox usage=1000,200]]", stream=True)
    pieces = iter(stream.streaming_content)
    for _ in range(4):
        next(pieces)
    # As the server does; closing the response itself would close the test's database connection.
    stream._iterator.close()
    row = logged(caller)
    assert (row.canceled, row.unified_finish_reason, row.estimated_cost) == (True, "canceled", True)
    assert 0 < (row.completion_tokens or 0) < 20
    assert row.cost == (Decimal(row.prompt_tokens or 0) * 15 + Decimal(row.completion_tokens or 0) * 60) / 10**8
    assert row.cost > 0


def test_a_kept_answer_is_free(caller: Caller) -> None:
    Project.objects.filter(pk=caller.key.project_id).update(caching_enabled=True, cache_duration_seconds=60)
    caller.chat(PAID)
    assert caller.chat(PAID)["x-gateway-cache"] == "hit"
    row = logged(caller, 2)
    assert (row.cached, row.cost, row.prompt_tokens, row.prices["waived"]) == (True, 0, 1000, "cached")


def test_no_counts_are_estimated_and_say_so(caller: Caller) -> None:
    told = caller.chat("12345678", model="sandbox/no-usage").json()["metadata"]
    assert told["estimated_cost"] is True
    row = logged(caller)
    assert (row.estimated_cost, row.prompt_tokens, row.completion_tokens) == (True, 6, 5)
    assert row.prices["used"] == {"input": 6, "output": 5, "estimated": True}
    assert (row.cost or 0) > 0


@pytest.mark.parametrize("stream", [False, True])
def test_an_estimate_weighs_characters_by_their_script(caller: Caller, stream: bool) -> None:
    """`You said: ` is ten letters; each of the hundred Han characters after it ten twelfths of a token."""
    answer = caller.chat("世" * 100, model="sandbox/no-usage", stream=stream)
    if stream:
        chunks_of(answer)
    assert logged(caller).completion_tokens == -(-(10 * 3 + 100 * 10) // 12) == 86


def counted_as_unpriced() -> float:
    """Return how many answers of the sandbox's `echo` the metric has counted so far."""
    metrics.flush_to_prometheus()
    return float(UNPRICED.labels("sandbox", "echo")._value.get())


@pytest.mark.parametrize(
    ("prices", "cost", "unpriced"),
    [
        ({}, "0", True),
        ({"input": "0", "output": "0"}, "0", False),
        # A missing price counts as 0.
        ({"input": "0.15"}, "0.00015", False),
        ({"output": "0.6"}, "0.00012", False),
        ({"request": "0.25"}, "0.25", False),
    ],
)
def test_a_missing_price_is_nothing_and_no_price_at_all_is_told(
    caller: Caller, prices: dict[str, str], cost: str, unpriced: bool
) -> None:
    priced(prices)
    before = counted_as_unpriced()
    caller.chat(PAID)
    row = logged(caller)
    assert (row.cost, row.unpriced, counted_as_unpriced() - before) == (Decimal(cost), unpriced, int(unpriced))
    told = caller.client.get("/logs", headers={"Authorization": f"Bearer {caller.token}"}).json()["logs"][0]
    assert told["unpriced"] is unpriced


TIERED = {
    "input": "1",
    "output": "2",
    "cached_input": "0.5",
    "tiers": [{"above_input_tokens": 1000, "input": "10", "output": "20"}],
}


@pytest.mark.parametrize(
    ("counts", "cost"),
    [
        ("1000,100", "0.0012"),
        ("1001,100", "0.01201"),
        # Tokens from a cache count for the tier, and keep their price where the tier states none.
        ("1001,100,1001", "0.0025005"),
    ],
)
def test_the_tier_is_chosen_by_what_was_read(caller: Caller, counts: str, cost: str) -> None:
    priced(TIERED)
    caller.chat(f"hi [[sandbox usage={counts}]]")
    assert logged(caller).cost == Decimal(cost)


ABSURD = ["100,10,5000", "0,10,0", "1000,10,0,5000"]


@pytest.mark.parametrize("counts", ABSURD)
def test_no_count_makes_a_bill_below_nothing(caller: Caller, counts: str) -> None:
    caller.chat(f"hi [[sandbox usage={counts}]]")
    row = logged(caller)
    parts = [row.cost, row.input_cost, row.output_cost, row.cached_input_cost]
    assert all(part is not None and part >= 0 for part in parts)


def test_who_is_refused_before_it_began_pays_nothing_and_has_no_row(caller: Caller) -> None:
    refusals: list[Callable[[], Any]] = [
        lambda: caller.chat("hi", model="sandbox/nothing-of-that-name"),
        lambda: caller.chat("hi", temperature=9),
    ]
    assert [ask().status_code for ask in refusals] == [400, 400]
    assert settle_all() == 0
    assert RequestLog.objects.count() == 0

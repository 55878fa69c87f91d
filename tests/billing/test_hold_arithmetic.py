"""Amounts of holds, limits and copies of balances: exact, without a store."""

from __future__ import annotations

import time
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import msgspec
import pytest

from apps.billing import balance_copies, balances, worker_leases
from apps.billing.balance_copies import DivergentCopy
from apps.billing.balances import Balance
from apps.billing.gifts import share_of
from apps.billing.ledger import Charge
from apps.billing.limit_holds import NO_USE, LimitHold, LimitHolds, MeasuredUse, letters_of
from apps.billing.reservations import Hold, Note, reduce_to_cost
from apps.billing.worker_leases import StoreClock, StoreClocks
from apps.kernel.ids import new_id

USD = Decimal
ORGANIZATION, KEY = UUID(int=1), UUID(int=2)
CREDITS, USAGE = balances.key("organization", ORGANIZATION), balances.key("key", KEY, ORGANIZATION)
MONEY, OTHER_MONEY = "balance:limit:m", "balance:limit:n"


def use_of(*money: str) -> MeasuredUse:
    return MeasuredUse("rt", money, 7, 5)


@pytest.mark.parametrize(
    ("charge", "use", "stays"),
    [
        # Each balance goes on holding the larger of what credits and usage owe, storage with the credits.
        (("-2", "2", "0.5"), NO_USE, [2_500_000_000, 2_500_000_000, 0, 0]),
        (("-2", "3", "0"), NO_USE, [3_000_000_000, 3_000_000_000, 0, 0]),
        # The client's own account was used: the credits owe nothing.
        (("0", "2", "0"), NO_USE, [0, 2_000_000_000, 0, 0]),
        (("0", "0", "0.5"), NO_USE, [500_000_000, 0, 0, 0]),
        (("0", "0", "0"), NO_USE, [0, 0, 0, 0]),
        # Amounts are rounded against the spender.
        (("-0.0000000001", "0.0000000001", "0"), NO_USE, [1, 1, 0, 0]),
        # Limits of money that count the answer hold it.
        (("-2", "2", "0"), use_of(MONEY), [2_000_000_000, 2_000_000_000, 2_000_000_000, 0]),
        (("-2", "2", "0"), use_of(MONEY, OTHER_MONEY), [2_000_000_000] * 4),
    ],
)
def test_a_settled_request_holds_what_it_cost_and_no_more(
    charge: tuple[str, str, str], use: MeasuredUse, stays: list[int]
) -> None:
    names = (CREDITS, USAGE, MONEY, OTHER_MONEY)
    hold = Hold("1", "worker-1", 9_000_000_000, names, "flight", 10)
    settled = reduce_to_cost(hold, Charge(ORGANIZATION, KEY, new_id(), *map(USD, charge)), use)
    kept = [name for name, amount in zip(names, stays, strict=True) if amount]
    assert (settled.amount, settled.use) == (max(stays), use)
    assert msgspec.json.decode(settled.note) == {"holds": kept, "payload": "", "flight": ""}


HOLDS = LimitHolds.prepare(
    [
        LimitHold("balance:limit:a", 10, "requests", warns_at=4),
        LimitHold("balance:limit:b", 20, "tokens", is_whole=True, older=("old-1", "old-2")),
        LimitHold(MONEY, 30, "usd"),
        LimitHold("balance:limit:c%", 40, "output_tokens"),
        LimitHold("balance:limit:d", 50, "input_tokens"),
    ]
)


def test_limits_in_the_forms_of_the_scripts() -> None:
    assert (HOLDS.money, HOLDS.has_counts) == ((MONEY,), True)
    assert msgspec.json.decode(HOLDS.terms) == {
        "counters": ["balance:limit:a", "balance:limit:b", MONEY, "balance:limit:c%", "balance:limit:d"],
        "ceilings": [10, 20, 30, 40, 50],
        "letters": ["r", "t", "u", "o", "i"],
        "warns_at": [4, False, False, False, False],
        "wholes": [False, True, False, False, False],
        "older": [[2, "old-1"], [2, "old-2"]],
    }
    assert HOLDS.has_answers is True
    assert LimitHolds.prepare([LimitHold("a", 1, "input_tokens"), LimitHold("b", 1, "usd")]).has_answers is False
    assert (HOLDS.ceilings["balance:limit:d"], HOLDS.older) == (50, {"balance:limit:b": ("old-1", "old-2")})


def test_a_note_holds_money_by_its_amount_and_counts_by_the_granted_tokens() -> None:
    note = Note(
        amount="5", written="9", holds=(CREDITS, MONEY), counts=(("a", 1, 0), ("b", 7, 1), ("c", 0, 1), ("d", 7, 0))
    )
    assert list(note.held()) == [(CREDITS, 5), (MONEY, 5), ("a", 1), ("b", 16), ("c", 9), ("d", 7)]


def test_limits_that_count_no_money_have_a_letter_each() -> None:
    measures = ["requests", "usd", "tokens", "output_tokens", "input_tokens"]
    assert letters_of((one, True) for one in measures) == "rtoi"
    assert letters_of((one, one.endswith("tokens")) for one in measures) == "-toi"
    assert letters_of((one, False) for one in measures) == "----"
    assert letters_of([]) == ""


def balance(scope: Any = "organization", amount: str = "1", **fields: Any) -> Balance:
    return Balance(scope, KEY, USD(amount), fields.pop("version", 5), fields.pop("epoch", 3), ORGANIZATION, **fields)


@pytest.mark.parametrize(
    ("amount", "version", "epoch", "is_ahead"),
    [
        (10**9, 6, 3, True),
        (10**9, 4, 3, False),
        (10**9, 5, 3, False),
        # The same version with another amount: the database lost a movement and made another.
        (10**9 + 1, 5, 3, True),
        (10**9 + 1, 4, 3, False),
        (10**9, 9, 2, False),
        (10**9, 1, 4, True),
    ],
)
def test_a_copy_is_ahead_when_it_knows_more_than_the_database(
    amount: int, version: int, epoch: int, is_ahead: bool
) -> None:
    assert DivergentCopy(balance(), amount, version, epoch).is_ahead is is_ahead


def test_a_balance_is_rounded_against_the_spender() -> None:
    assert [balance(scope, "1.0000000009").nanos for scope in ("organization", "key", "limit")] == [
        1_000_000_000,
        1_000_000_001,
        1_000_000_001,
    ]


def test_a_copy_of_a_counter_outlives_its_window_by_two_days(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balances, "time", SimpleNamespace(time=lambda: 1_000.9))
    assert balance().expires_at == ""
    assert balance("limit", ends_at=5_000).expires_at == 5_000 + 172_800
    # One of the past is kept for requests that began in it.
    assert balance("limit", ends_at=500).expires_at == 1_000 + 172_800


def test_a_balance_is_in_the_shard_of_its_organization(monkeypatch: pytest.MonkeyPatch) -> None:
    balances.key.cache_clear()
    try:
        assert balances.key("key", KEY).endswith(f"balance:key:{KEY}")
        monkeypatch.setattr(balances, "SHARD_COUNT", 2)
        balances.key.cache_clear()
        with pytest.raises(ValueError, match="in the shard of its organization"):
            balances.key("key", KEY)
        assert balances.key("organization", KEY).endswith(f"balance:organization:{KEY}")
        assert balances.key("limit", KEY, ORGANIZATION).endswith(f"balance:limit:{KEY}")
    finally:
        balances.key.cache_clear()
    assert [balances.is_of_credits(name) for name in (CREDITS, USAGE, MONEY)] == [True, False, False]


def test_a_clock_was_set_when_it_moved_more_than_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = [100.0], [900.0]
    monkeypatch.setattr(worker_leases, "time", SimpleNamespace(monotonic=lambda: ours[0], time=time.time))
    clock = StoreClock(lambda: theirs[0])
    # There is nothing to compare with at first.
    assert clock.was_set() is False
    for passed, moved, was_set in (
        (60.0, 60.0, False),
        (10.0, 15.0, False),
        (10.0, 15.5, True),
        (10.0, 10.0, False),
        (10.0, 5.0, False),
        (10.0, 4.5, True),
    ):
        ours[0] += passed
        theirs[0] += moved
        assert clock.was_set() is was_set
    monkeypatch.setattr(worker_leases, "store_time", lambda shard: theirs[0])
    clocks = StoreClocks()
    assert clocks.was_set() is False
    theirs[0] += 6
    assert clocks.was_set() is True


def test_a_referrer_gets_one_percent_rounded_down_to_the_ledgers_resolution() -> None:
    assert [share_of(USD(one)) for one in ("100", "0.0000000001", "0.00000000019", "0.0000000000999")] == [
        USD(1),
        USD("0.000000000001"),
        USD("0.000000000001"),
        USD(0),
    ]


def test_the_time_of_a_store_is_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def server(shard: int) -> Any:
        asked.append(shard)
        return SimpleNamespace(time=lambda: (5, 250_000))

    monkeypatch.setattr(worker_leases, "server_of_shard", server)
    assert worker_leases.store_time(3) == 5.25
    assert asked == [3]


def test_one_clock_of_many_that_was_set_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = [100.0, 900.0]
    monkeypatch.setattr(worker_leases, "time", SimpleNamespace(monotonic=lambda: 10.0))
    monkeypatch.setattr(worker_leases, "store_time", lambda shard: theirs[shard])
    monkeypatch.setattr(worker_leases, "SHARDS", (0, 1))
    clocks = StoreClocks()
    assert clocks.was_set() is False
    theirs[1] += 6
    assert clocks.was_set() is True
    assert clocks.was_set() is False


def test_the_latest_epoch_of_any_shard_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balance_copies, "read_epochs_in_redis", lambda: [3, 7, 5])
    assert balance_copies.read_epoch_in_redis() == 7


def test_limits_are_prepared_with_nothing_for_tokens_where_none_are_counted() -> None:
    holds = LimitHolds.prepare(
        [LimitHold(MONEY, 30, "usd"), LimitHold("a", 5, "tokens"), LimitHold("b", 6, "requests")]
    )
    assert msgspec.json.decode(holds.terms) == {
        "counters": [MONEY, "a", "b"],
        "ceilings": [30, 5, 6],
        "letters": ["u", "t", "r"],
    }
    assert (holds.has_answers, holds.has_counts, holds.money) == (True, True, (MONEY,))
    only_money = LimitHolds.prepare([LimitHold(MONEY, 30, "usd")])
    assert (only_money.has_answers, only_money.has_counts, only_money.key_ceiling) == (False, False, None)
    of_key = LimitHolds.prepare([LimitHold(USAGE, 20, "usd"), LimitHold(MONEY, 30, "usd")])
    assert (of_key.money, of_key.key_ceiling) == ((USAGE, MONEY), 20)
    assert LimitHolds.prepare([]).key_ceiling is None


def test_the_shard_of_a_balance_is_that_of_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[UUID] = []

    def note(owner: UUID) -> int:
        asked.append(owner)
        return 0

    monkeypatch.setattr(balances, "shard_of", note)
    balances.key.cache_clear()
    try:
        assert balances.key("organization", KEY) == f"balance:organization:{KEY}"
        assert balances.key("limit", KEY, ORGANIZATION) == f"balance:limit:{KEY}"
        assert balances.key("key", KEY) == f"balance:key:{KEY}"
    finally:
        balances.key.cache_clear()
    assert asked == [KEY, ORGANIZATION]

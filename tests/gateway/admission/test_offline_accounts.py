"""Balances that a process knows: read from the database by one at a time, kept for the latest, and published."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError

from apps.billing import balance_copies, balances, ledger
from apps.billing.balances import Balance
from apps.billing.ledger import Charge
from apps.gateway.admission import offline_accounts
from apps.gateway.admission.offline_accounts import OfflineAccount, OfflineHold
from apps.gateway.metrics import OFFLINE_ALLOWANCE_USED
from apps.kernel.errors import Overloaded
from apps.kernel.ids import new_id
from apps.kernel.postgres import database
from apps.kernel.valkey.redis import client
from tests.support.cast import World, make_key, world

__all__ = ["world"]
NANO = 10**9


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A process that knows nothing yet, and the monotonic clock of its accounts, in seconds."""
    clock = SimpleNamespace(now=1_000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(offline_accounts, "time", clock)
    offline_accounts.forget_all()
    yield clock
    offline_accounts.forget_all()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """The balances that the database was asked for. It is away for those of no organization."""
    found: list[UUID] = []
    ask = ledger.balances_of

    def note(scope: Any, ids: list[UUID]) -> list[Balance]:
        found.extend(ids)
        if ids[0] == AWAY:
            raise OperationalError("away")
        return ask(scope, ids)

    monkeypatch.setattr(ledger, "balances_of", note)
    return found


AWAY = UUID(int=7)


def test_a_balance_is_asked_for_again_after_two_seconds(world: World, asked: list[UUID], clock: Any) -> None:
    ledger.grant(world.acme.id, Decimal(10), "")
    for passed, times in ((0.0, 1), (1.5, 1), (0.5, 2), (1.5, 2), (0.5, 3)):
        clock.now += passed
        offline_accounts.find_in_database("organization", world.acme.id)
        assert asked.count(world.acme.id) == times
    assert offline_accounts.find(world.acme.id) == 10 * NANO
    # Another one is asked for at once.
    offline_accounts.find_in_database("organization", world.elsewhere.id)
    assert (asked[-1], offline_accounts.find(world.elsewhere.id)) == (world.elsewhere.id, 0)
    offline_accounts.forget_all()
    assert offline_accounts.find(world.acme.id) is None
    offline_accounts.find_in_database("organization", world.acme.id)
    assert (asked.count(world.acme.id), offline_accounts.find(world.acme.id)) == (4, 10 * NANO)


def test_a_process_that_has_just_begun_asks(world: World, asked: list[UUID], clock: Any) -> None:
    clock.now = 2.0
    offline_accounts.find_in_database("organization", world.acme.id)
    assert asked == [world.acme.id]


def test_after_a_failure_nothing_is_asked_for_two_seconds(world: World, asked: list[UUID], clock: Any) -> None:
    offline_accounts.find_in_database("organization", AWAY)
    for passed, times in ((0.0, 0), (1.5, 0), (0.5, 1)):
        clock.now += passed
        offline_accounts.find_in_database("organization", world.acme.id)
        assert asked.count(world.acme.id) == times
    assert offline_accounts.find(AWAY) is None
    clock.now += 60
    offline_accounts.find_in_database("organization", AWAY)
    offline_accounts.forget_all()
    offline_accounts.find_in_database("organization", world.elsewhere.id)
    assert asked[-2:] == [AWAY, world.elsewhere.id]


def test_the_times_of_the_latest_questions_are_kept(
    world: World, asked: list[UUID], clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline_accounts, "_MAX_BALANCES", 2)
    first, second, third = new_id(), new_id(), new_id()
    for identifier, passed in ((first, 0), (second, 3), (first, 0), (third, 0)):
        clock.now += passed
        offline_accounts.find_in_database("organization", identifier)
    assert asked == [first, second, first, third]
    # The second's went, as the oldest of three; the first's was renewed.
    offline_accounts.find_in_database("organization", first)
    offline_accounts.find_in_database("organization", third)
    offline_accounts.find_in_database("organization", second)
    assert asked[4:] == [second]


def test_as_many_balances_are_remembered_as_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline_accounts, "_MAX_BALANCES", 2)
    first, second, third = new_id(), new_id(), new_id()
    for nanos, identifier in enumerate((first, second)):
        offline_accounts._remember_balance(identifier, nanos)
    assert [offline_accounts.find(one) for one in (first, second)] == [0, 1]
    offline_accounts._remember_balance(first, 5)
    offline_accounts._remember_balance(third, 6)
    assert [offline_accounts.find(one) for one in (first, second, third)] == [5, None, 6]


def test_a_balance_that_is_read_is_published_and_remembered(world: World) -> None:
    ledger.grant(world.acme.id, Decimal(10), "")
    offline_accounts.publish("organization", world.acme.id)
    assert offline_accounts.find(world.acme.id) == 10 * NANO
    name = balances.key("organization", world.acme.id)
    assert client().hmget(name, "amount", "version") == [str(10 * NANO), "1"]
    # A copy that knows more: the database has lost changes.
    client().hset(name, mapping={"amount": 7, "version": 5})
    epoch = balance_copies.read_epoch()
    offline_accounts.publish("organization", world.acme.id)
    assert balance_copies.read_epoch() > epoch
    assert client().hmget(name, "amount", "version") == [str(10 * NANO), "1"]
    assert offline_accounts.read("organization", new_id()) == []


def test_a_connection_is_given_back_whether_it_was_published_or_not(
    world: World, asked: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[bool] = []
    monkeypatch.setattr(database, "release_connection", lambda: released.append(True))

    def fail(_: Any) -> None:
        raise OperationalError("away")

    offline_accounts.publish("organization", world.acme.id)
    assert len(released) == 1
    monkeypatch.setattr(balance_copies, "repair_copies", fail)
    with pytest.raises(Overloaded) as raised:
        offline_accounts.publish("organization", world.acme.id)
    assert (len(released), raised.value.retry_after) == (2, 2.0)
    with pytest.raises(Overloaded, match="cannot check credits right now") as raised:
        offline_accounts.read("organization", AWAY)
    assert (raised.value.retry_after, type(raised.value.__cause__)) == (2.0, OperationalError)


def test_a_balance_is_one_brief_question(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is spared the round trips for a timeout, which work of unknown length needs."""
    said: list[bool] = []
    read = database.read

    def note(work: Any, *, brief: bool = False) -> Any:
        said.append(brief)
        return read(work, brief=brief)

    monkeypatch.setattr(database, "read", note)
    key = make_key(world.olivia, world.project).key
    [found] = offline_accounts.read("key", key.id)
    assert (found.id, found.amount, said) == (key.id, Decimal(0), [True])


def test_an_unchecked_request_counts_until_its_end_and_then_with_its_cost() -> None:
    key, before = new_id(), OFFLINE_ALLOWANCE_USED._value.get()
    account = OfflineAccount(in_flight=2)
    hold = OfflineHold(account, new_id(), key, 10_000, amount_nanos=1_000)
    free = OfflineHold(account, None, None, None, amount_nanos=0)
    account.add(1_000, key)
    assert (account.spent, account.keys[key]) == (1_000, 1_000)
    assert OFFLINE_ALLOWANCE_USED._value.get() == pytest.approx(before + 1e-6, abs=1e-12)
    charge = Charge(new_id(), key, new_id(), Decimal("-0.0000000021"), Decimal("0.0000000031"), Decimal("0.000000002"))
    for _ in range(2):
        hold.settle(charge)
        assert (account.spent, account.keys[key], account.in_flight, hold.is_open) == (5, 5, 1, False)
    # Without a key its usage counts for nothing: what it is charged is its credits.
    free.settle(Charge(new_id(), key, new_id(), Decimal(0), Decimal(5)))
    assert (account.spent, account.in_flight, account.keys) == (5, 0, {key: 5})
    offline_accounts.add_to_gauge(-5)
    assert OFFLINE_ALLOWANCE_USED._value.get() == pytest.approx(before, abs=1e-12)

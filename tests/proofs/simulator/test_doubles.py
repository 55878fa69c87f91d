"""The doubles of the simulator answer as the real stores do: random calls, and whole histories, on both."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import transaction
from redis import Redis
from redis.exceptions import RedisError

from apps.billing import balance_copies, ledger
from apps.billing.ledger import Charge
from apps.kernel.ids import new_id
from apps.kernel.money import ZERO
from apps.kernel.valkey.redis import LuaScript, client
from apps.keys.models import ApiKey
from apps.logs import writer
from apps.logs.entry import Entry
from tests.logs.entries import entry
from tests.proofs.simulator.mutants import MUTANTS
from tests.proofs.simulator.search import draw
from tests.proofs.simulator.stores import Doubles, RealStores

# One key of each kind, so that commands also meet keys of another kind; the last is of any kind.
KEYS = "text", "hash", "list", "set", "stream", "any"
GROUPS, CONSUMERS, NAMES = ("group", "other"), ("one", "two"), ("x", "y", "z")
Command = tuple[str | int, ...]


class Commands:
    """Draws random commands of the kinds that the product sends, with arguments that collide often."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._last_id = 0

    def draw(self) -> Command:
        """Return the next command."""
        some = self._chance.choice
        name, key = some(list(_ARGUMENTS)), some(KEYS)
        usual = {"H": "hash", "L": "list", "Z": "set", "X": "stream"}.get(name[0], "text")
        return name, some([usual, usual, usual, key]), *_ARGUMENTS[name](self)

    def word(self) -> str:
        """Return a member, a field or a value."""
        return self._chance.choice(NAMES)

    def number(self) -> int:
        """Return a small number."""
        return self._chance.randint(-3, 6)

    def pick(self, *items: Any) -> Any:
        """Return one of some items."""
        return self._chance.choice(items)

    def new_id(self) -> str:
        """Return the id of a stream's next entry; one that is too low now and then."""
        self._last_id += self._chance.choice([0, 1, 1, 1])
        return f"{self._last_id}-1"

    def ids(self) -> list[str]:
        """Return some ids of entries, of which some do not exist."""
        return [f"{self._chance.randint(1, self._last_id + 1)}-1" for _ in range(self._chance.randint(1, 3))]


_ARGUMENTS: dict[str, Callable[[Commands], Sequence[str | int]]] = {
    "GET": lambda draw: (),
    "SET": lambda draw: (draw.word(), *draw.pick((), ("NX",), ("EX", 1000))),
    "DEL": lambda draw: (),
    "EXISTS": lambda draw: (draw.pick(*KEYS),),
    "EXPIRE": lambda draw: (draw.pick(1000, -1),),
    "EXPIREAT": lambda draw: (draw.pick(4_000_000_000, 1),),
    "HGET": lambda draw: (draw.word(),),
    "HMGET": lambda draw: (draw.word(), draw.word()),
    "HGETALL": lambda draw: (),
    "HVALS": lambda draw: (),
    "HLEN": lambda draw: (),
    "HSET": lambda draw: (draw.word(), draw.pick(draw.word(), draw.number()), draw.word(), draw.number()),
    "HDEL": lambda draw: (draw.word(), draw.word()),
    "HINCRBY": lambda draw: (draw.word(), draw.number()),
    "LPUSH": lambda draw: (draw.word(), draw.word()),
    "LRANGE": lambda draw: (draw.number(), draw.number()),
    "LTRIM": lambda draw: (draw.number(), draw.number()),
    "ZADD": lambda draw: (*draw.pick((), (), ("NX",), ("XX",)), draw.number(), draw.word(), "1.5", draw.word()),
    "ZREM": lambda draw: (draw.word(), draw.word()),
    "ZSCORE": lambda draw: (draw.word(),),
    "ZCARD": lambda draw: (),
    "ZRANGE": lambda draw: (draw.number(), draw.number(), *draw.pick((), ("WITHSCORES",))),
    "ZRANGEBYSCORE": lambda draw: (draw.pick("-inf", f"({draw.number()}", draw.number()), draw.pick("+inf", 3, "(3")),
    "ZREMRANGEBYSCORE": lambda draw: ("-inf", draw.number() - 3),
    "XADD": lambda draw: (draw.new_id(), "field", draw.word()),
    "XLEN": lambda draw: (),
    "XRANGE": lambda draw: (*draw.pick(("-", "+"), ("2-1", "5-1"), ("3-1", "3-1")), *draw.pick((), ("COUNT", 1))),
    "XDEL": lambda draw: draw.ids(),
    "XGROUP CREATE": lambda draw: (draw.pick(*GROUPS), draw.pick("0", "0", "$"), *draw.pick((), ("MKSTREAM",))),
    "XACK": lambda draw: (draw.pick(*GROUPS), *draw.ids()),
    "XPENDING": lambda draw: (draw.pick(*GROUPS), "-", "+", draw.pick(2, 100)),
    "XCLAIM": lambda draw: (
        *(draw.pick(*GROUPS), draw.pick(*CONSUMERS), draw.pick(0, 10_000), *draw.ids()),
        *draw.pick((), ("IDLE", 20_000), ("IDLE", 20_000, "JUSTID")),
    ),
    "XAUTOCLAIM": lambda draw: (
        *(draw.pick(*GROUPS), draw.pick(*CONSUMERS), draw.pick(0, 10_000), "0-0", "COUNT", draw.pick(1, 100)),
    ),
}


def _answer(name: str | int, *args: str | int) -> Any:
    """Return the store's answer to a command as it is on the wire, or its error."""
    asking = Redis(connection_pool=client().connection_pool)
    asking.response_callbacks.clear()
    try:
        answer = asking.execute_command(str(name), *args)
    except RedisError as error:
        return type(error).__name__, str(error)
    if name == "XPENDING":
        # A real clock goes on.
        return [[one, consumer, idle // 1000, deliveries] for one, consumer, idle, deliveries in answer]
    return answer


def _drawn(seed: int, count: int) -> list[Command]:
    commands = Commands(seed)
    drawn: list[Command] = [("XGROUP CREATE", "stream", "group", "0", "MKSTREAM")]
    for _ in range(count):
        drawn.append(commands.draw())
        if drawn[-1][0] == "XADD":
            consumer, since = commands.pick(*CONSUMERS), commands.pick(">", ">", "0")
            read = "GROUP", commands.pick("group", "group", *GROUPS), consumer, "COUNT", commands.pick(1, 100)
            drawn.append(("XREADGROUP", *read, "STREAMS", "stream", since))
    return drawn


@pytest.mark.parametrize("seed", range(3))
def test_commands_are_answered_as_by_valkey(seed: int) -> None:
    commands = _drawn(seed, 1_100)
    client().flushall()
    real = [_answer(*one) for one in commands]
    with Doubles().installed():
        doubled = [_answer(*one) for one in commands]
    for command, expected, found in zip(commands, real, doubled, strict=True):
        assert found == expected, command
    assert len({str(answer)[:12] for answer in real}) > 50


SCRIPTS = {
    "numbers lose their fraction": "return {1, 2.9, -2.9, 'x', false, true, {3, {4}}}",
    "an answer ends where nothing is": "return {1, 2, nil, 4}",
    "false is nothing": "return false",
    "no answer is nothing": "return",
    "a missing value is false": "return {redis.call('GET', 'none') == false and 1 or 0}",
    "missing fields are false": "local b = redis.call('HMGET', KEYS[1], 'a', 'b') return {b[1] == false and 1, b[2]}",
    "a time has two texts": "local t = redis.call('TIME') return {#t, type(t[1]), type(t[2])}",
    "a count is a number": "return {type(redis.call('HLEN', KEYS[1])), redis.call('HLEN', KEYS[1]) + 1}",
    "arguments are texts": "return {type(ARGV[1]), ARGV[1], ARGV[2], ARGV[3], #ARGV, #KEYS}",
    "large numbers are written whole": "return {string.format('%.0f', 9007199254740993), tostring(1e15)}",
    "numbers become texts": "redis.call('SET', 'n', 12) return {redis.call('GET', 'n')}",
    "objects become tables": "local o = cjson.decode(ARGV[4]) return {o.amount, #o.holds, o.counts[1][2] + 1, o.x}",
    "a score is a text": "redis.call('ZADD', 'z', 1.5, 'a') local s = redis.call('ZSCORE', 'z', 'a') "
    "return {type(s), s}",
    "no score is false": "return {redis.call('ZSCORE', 'none', 'a') == false and 1 or 0}",
    "scores are numbers": "redis.call('ZADD', 'z', 10, 'a', 9.5, 'b') return redis.call('ZRANGE', 'z', 0, -1)",
}


@pytest.mark.parametrize("source", SCRIPTS.values(), ids=SCRIPTS)
def test_scripts_are_run_as_by_valkey(source: str) -> None:
    def run() -> Any:
        client().flushall()
        client().hset("hash", "b", "value")
        note = '{"amount":"5","holds":["a","b"],"counts":[["c",7,1]]}'
        return LuaScript(source)(["hash"], ["text", 7, b"bytes", note])

    real = run()
    with Doubles().installed():
        assert run() == real


class Calls:
    """Draws random calls of the functions that the double of PostgreSQL replaces, for some keys and requests."""

    def __init__(self, seed: int, keys: Sequence[ApiKey]) -> None:
        self._chance = random.Random(seed)
        self._owners = [(key.project.organization_id, key.id) for key in keys] + [(new_id(), new_id())]
        self._requests = [
            {"id": new_id(), "organization_id": owner, "api_key_id": key, "project_id": new_id()}
            for owner, key in self._owners
            for _ in range(6)
        ]

    def draw(self) -> Callable[[], Any]:
        """Return the next call."""
        kinds = [self._grant, self._settle, self._settle, self._settle_in_vain, self._read, self._begin]
        return self._chance.choice(kinds)()

    def _grant(self) -> Callable[[], Any]:
        owner, amount = self._chance.choice(self._owners[:-1])[0], Decimal(self._chance.randint(1, 9)) / 1000
        return lambda: ledger.grant(owner, amount, "drawn") and None

    def _settle(self) -> Callable[[], Any]:
        entries = [self._entry() for _ in range(self._chance.randint(1, 4))]

        def settle() -> Any:
            writer.prepare(entries)
            with transaction.atomic():
                written = writer.write(entries)
                changed = ledger.charge([_charge_of(one) for one in entries if one.id in written])
            return sorted(written), _ordered(changed), sorted(one.epoch > 0 for one in changed)

        return settle

    def _settle_in_vain(self) -> Callable[[], Any]:
        entries = [self._entry() for _ in range(3)]

        def settle() -> Any:
            try:
                with transaction.atomic():
                    written = writer.write(entries)
                    found = sorted(written), _ordered(ledger.charge(list(map(_charge_of, entries))))
                    raise ZeroDivisionError
            except ZeroDivisionError:
                return found, sorted(writer.find_written([one.id for one in entries]))

        return settle

    def _read(self) -> Callable[[], Any]:
        organizations, keys = zip(*self._chance.sample(self._owners, 2), strict=True)
        requests = [one["id"] for one in self._requests]
        return lambda: (
            _ordered(ledger.balances_of("organization", organizations)),
            _ordered(ledger.balances_of("key", keys)),
            ledger.balances_of("limit", keys),
            _ordered(ledger.moved_last(100)),
            {str(one.organization_id) for one in ledger.balances_of("key", keys)},
            {one.epoch for one in ledger.balances_of("organization", organizations)},
            sorted(writer.find_written(requests)),
            balance_copies.read_epoch(),
        )

    def _begin(self) -> Callable[[], Any]:
        is_late = self._chance.random() < 0.3
        return lambda: balance_copies.begin_epoch("drawn", instead_of=balance_copies.read_epoch() - is_late)

    def _entry(self) -> Entry:
        cost = Decimal(self._chance.randint(0, 9)) / 10_000
        return entry(**self._chance.choice(self._requests), cost=cost, swept=self._chance.random() < 0.4)


def _charge_of(one: Entry) -> Charge:
    cost = one.cost or ZERO
    return Charge(one.organization_id, one.api_key_id, one.id, -cost, cost)


def _ordered(balances: Sequence[Any]) -> list[Any]:
    return sorted(balances, key=lambda one: (one.scope, one.id))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("seed", range(2))
def test_the_ledger_and_the_log_answer_as_in_postgresql(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Epochs are numbered by the clock.
    monkeypatch.setattr(balance_copies, "time", SimpleNamespace(time_ns=lambda: 0))
    client().flushall()
    stores, doubles = RealStores(), Doubles()
    keys = stores.open_accounts(3)
    drawn = Calls(seed, keys)
    calls = [drawn.draw() for _ in range(60)]
    for key in keys:
        doubles.postgres.open_account(key.project.organization_id, key.id)
    doubles.postgres.epochs = [balance_copies.read_epoch()]
    real, books = [call() for call in calls], [stores.read_books(key) for key in keys]
    requests = [one["id"] for one in drawn._requests]
    state = stores.read_charges(requests), stores.read_rows(requests)
    with doubles.installed():
        for number, (call, expected) in enumerate(zip(calls, real, strict=True)):
            assert call() == expected, number
        assert [doubles.read_books(key) for key in keys] == books
        assert (doubles.read_charges(requests), doubles.read_rows(requests)) == state
    assert state[0]
    assert set(state[1].values()) == {True, False}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("mutant", "seed"), [("", 1), ("", 2), ("held twice", 3)])
def test_a_seed_gives_the_same_history_on_doubles_and_on_real_stores(mutant: str, seed: int) -> None:
    doubles = Doubles()
    with MUTANTS[mutant]() if mutant else nullcontext():
        real = draw(seed, 150, RealStores())
        with doubles.installed():
            doubled = draw(seed, 150, doubles)
    assert doubled.moves == real.moves
    assert bool(doubled.problems) == bool(real.problems)

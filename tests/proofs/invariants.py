"""Invariants of money: what must be true of the stores and of clients' answers whenever no request is in progress.

Each invariant is a function over a snapshot and yields what breaks it. Proofs, tests and chaos runs share them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, NamedTuple

ZERO: Final = Decimal(0)
NANO: Final = Decimal(10) ** 9
# The request that a reservation or a record belongs to, an organization, an API key: their ids as text.
Id = str


class LogRow(NamedTuple):
    """A row of the request log. Amounts are USD; `credits` tells whether the service's own credentials were used."""

    id: Id
    request_id: str
    organization: Id
    key: Id
    cost: Decimal
    storage: Decimal = ZERO
    credits: bool = True


class Movement(NamedTuple):
    """A ledger entry. Amounts are USD: what it adds to the organization's credits, and to the key's usage."""

    kind: str
    reference: Id
    organization: Id
    key: Id | None
    credits: Decimal
    usage: Decimal = ZERO


class BalanceCopy(NamedTuple):
    """The copy of a balance in Valkey, of an organization or a key. Amounts are 1e-9 USD."""

    owner: Id
    amount: int
    held: int
    version: int
    epoch: int


class OpenHold(NamedTuple):
    """A reservation in Valkey, under its worker: its amount in 1e-9 USD, and the owners of its balances."""

    request: Id
    worker: str
    amount: int
    owners: tuple[Id, ...]


class Answer(NamedTuple):
    """The outcome of a request for its client, by the request's id or that of its row.

    `cost` is the cost that a complete answer states, None for an answer that is not complete. `rows` is how many rows
    it has, None where a client cannot know. A refused request was never admitted.
    """

    request: str
    cost: Decimal | None = None
    rows: int | None = 1
    refused: bool = False


@dataclass
class Snapshot:
    """The stores at one moment, and all answers until then. Owners are organizations and keys."""

    # PostgreSQL: balances and limits in USD, the ledger, the log, and the sums of the activity roll-ups by key.
    credits: Mapping[Id, Decimal] = field(default_factory=dict)
    usage: Mapping[Id, Decimal] = field(default_factory=dict)
    limits: Mapping[Id, Decimal] = field(default_factory=dict)
    movements: Sequence[Movement] = ()
    rows: Sequence[LogRow] = ()
    activity: Mapping[Id, Decimal] = field(default_factory=dict)
    # Valkey: copies and reservations, workers with a lease, and the requests whose records wait to be settled.
    copies: Sequence[BalanceCopy] = ()
    holds: Sequence[OpenHold] = ()
    workers: frozenset[str] = frozenset()
    waiting: frozenset[Id] = frozenset()
    # Ledger epochs in the order in which they were seen, the database's and each shard's.
    epochs: tuple[int, ...] = ()
    store_epochs: tuple[int, ...] = ()
    answers: Sequence[Answer] = ()
    # USD that an owner may have spent beyond its credits or limit: the allowance for outages.
    allowance: Decimal = ZERO


class Breach(NamedTuple):
    """A broken invariant: its name, what it is about, and the two sides that differ."""

    invariant: str
    subject: str
    words: str


Invariant = Callable[[Snapshot], Iterator[Breach]]


def balances_are_sums_of_the_ledger(seen: Snapshot) -> Iterator[Breach]:
    """An organization's credits and a key's usage are the sums of their ledger entries."""
    credits: defaultdict[Id, Decimal] = defaultdict(Decimal)
    usage: defaultdict[Id, Decimal] = defaultdict(Decimal)
    for one in seen.movements:
        credits[one.organization] += one.credits
        if one.key is not None:
            usage[one.key] += one.usage
    for balances, sums in ((seen.credits, credits), (seen.usage, usage)):
        for owner, amount in balances.items():
            if amount != sums[owner]:
                yield Breach("balances_are_sums_of_the_ledger", owner, f"balance {amount}, entries {sums[owner]}")


def holds_belong_to_requests(seen: Snapshot) -> Iterator[Breach]:
    """A balance holds the sum of its reservations, each of which has a worker with a lease, or a record."""
    promised: Counter[Id] = Counter()
    for hold in seen.holds:
        for owner in hold.owners:
            promised[owner] += hold.amount
        if hold.worker not in seen.workers and hold.request not in seen.waiting:
            yield Breach("holds_belong_to_requests", hold.request, "its worker is gone, and it has no record")
    for copy in seen.copies:
        if copy.held != promised[copy.owner]:
            words = f"holds {copy.held}, reservations {promised[copy.owner]}"
            yield Breach("holds_belong_to_requests", copy.owner, words)


def answers_are_recorded_once(seen: Snapshot) -> Iterator[Breach]:
    """A complete answer has its rows, each once."""
    name, rows = "answers_are_recorded_once", _rows_by_request(seen)
    ids = Counter(row.id for row in seen.rows)
    yield from (Breach(name, row, f"is in the log {number} times") for row, number in ids.items() if number > 1)
    for answer in seen.answers:
        number = len(rows.get(answer.request, ()))
        if answer.cost is not None and (number != answer.rows if answer.rows is not None else not number):
            yield Breach(name, answer.request, f"{number} rows instead of {answer.rows or 'some'}")


def answers_state_their_cost(seen: Snapshot) -> Iterator[Breach]:
    """The rows of a complete answer cost together what it states."""
    rows = _rows_by_request(seen)
    for answer in seen.answers:
        found = rows.get(answer.request)
        if answer.cost is not None and found and (cost := sum((row.cost for row in found), ZERO)) != answer.cost:
            yield Breach("answers_state_their_cost", answer.request, f"states {answer.cost}, its rows cost {cost}")


def rows_are_charged_once(seen: Snapshot) -> Iterator[Breach]:
    """A row is charged its own cost and storage, to its key and its organization; nothing else is charged."""
    name = "rows_are_charged_once"
    charged: defaultdict[tuple[str, Id], list[Movement]] = defaultdict(list)
    for one in seen.movements:
        if one.kind in {"usage", "storage"}:
            charged[one.kind, one.reference].append(one)
    for row in seen.rows:
        owed = {"usage": (-row.cost if row.credits else ZERO, row.cost), "storage": (-row.storage, ZERO)}
        for kind, amounts in owed.items():
            found = charged.pop((kind, row.id), [])
            is_whole = not any(amounts) and not found
            if not is_whole and [(one.credits, one.usage) for one in found] != [amounts]:
                words = f"{kind} is {[(str(one.credits), str(one.usage)) for one in found]}"
                yield Breach(name, row.id, f"{words} instead of {tuple(map(str, amounts))}")
            elif any((one.organization, one.key) != (row.organization, row.key) for one in found):
                yield Breach(name, row.id, f"{kind} is charged to another key or organization")
    yield from (Breach(name, reference, f"{kind} without a row") for kind, reference in charged)


def spending_stays_within_means(seen: Snapshot) -> Iterator[Breach]:
    """No organization owes more than the allowance, and no key has used more than its limit and the allowance."""
    for owner, credits in seen.credits.items():
        if credits < -seen.allowance:
            yield Breach("spending_stays_within_means", owner, f"credits {credits}, allowed {-seen.allowance}")
    for owner, limit in seen.limits.items():
        used = seen.usage.get(owner, ZERO)
        if used > limit + seen.allowance:
            yield Breach("spending_stays_within_means", owner, f"used {used} of {limit}")


def epochs_only_grow(seen: Snapshot) -> Iterator[Breach]:
    """The ledger's epoch never goes back, and no store knows a later one than the database."""
    for before, after in zip(seen.epochs, seen.epochs[1:], strict=False):
        if after < before:
            yield Breach("epochs_only_grow", str(after), f"came after {before}")
    present = seen.epochs[-1] if seen.epochs else 0
    for shard, epoch in enumerate(seen.store_epochs):
        if epoch > present:
            yield Breach("epochs_only_grow", f"shard {shard}", f"knows {epoch}, the database {present}")


def refusals_cost_nothing(seen: Snapshot) -> Iterator[Breach]:
    """A refused request has no row with a cost."""
    rows = _rows_by_request(seen)
    for answer in seen.answers:
        if answer.refused and any(row.cost or row.storage for row in rows.get(answer.request, ())):
            yield Breach("refusals_cost_nothing", answer.request, "was refused, and costs something")


def counters_are_sums_of_the_log(seen: Snapshot) -> Iterator[Breach]:
    """The activity of each key is the sum of its rows."""
    sums: defaultdict[Id, Decimal] = defaultdict(Decimal)
    for row in seen.rows:
        sums[row.key] += row.cost + row.storage
    for key in seen.activity.keys() | sums.keys():
        counted = seen.activity.get(key, ZERO)
        if counted != sums[key]:
            yield Breach("counters_are_sums_of_the_log", key, f"counted {counted}, rows {sums[key]}")


def copies_agree_with_balances(seen: Snapshot) -> Iterator[Breach]:
    """A copy of the current epoch is no further than its balance, and equal to it once nothing waits."""
    present = seen.epochs[-1] if seen.epochs else 0
    for copy in seen.copies:
        amount = seen.credits.get(copy.owner, seen.usage.get(copy.owner))
        if amount is None or copy.epoch != present:
            continue
        # Rounded against the spender: up to one unit.
        if abs(copy.amount - amount * NANO) >= 1:
            yield Breach("copies_agree_with_balances", copy.owner, f"copy {copy.amount}, balance {amount}")


ALL: Final[tuple[Invariant, ...]] = (
    balances_are_sums_of_the_ledger,
    holds_belong_to_requests,
    answers_are_recorded_once,
    answers_state_their_cost,
    rows_are_charged_once,
    spending_stays_within_means,
    epochs_only_grow,
    refusals_cost_nothing,
    counters_are_sums_of_the_log,
    copies_agree_with_balances,
)


def breaches(seen: Snapshot, invariants: Iterable[Invariant] = ALL) -> list[Breach]:
    """Return everything that breaks an invariant."""
    return [breach for invariant in invariants for breach in invariant(seen)]


def _rows_by_request(seen: Snapshot) -> dict[str, list[LogRow]]:
    """Return the rows of each request, under its id and under the row's own."""
    found: defaultdict[str, list[LogRow]] = defaultdict(list)
    for row in seen.rows:
        for name in {row.request_id, row.id}:
            found[name].append(row)
    return dict(found)

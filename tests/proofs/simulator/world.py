"""The simulated world: organizations, workers and settlers, and the moves that a scheduler makes in it.

All money is moved by the product's own functions. The world remembers which request was answered and which hold was
lost, and says at the end what the books must hold.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import DatabaseError
from redis.exceptions import RedisError

from apps.billing import balance_copies, balances, ledger, reservations, worker_leases
from apps.billing.balance_copies import LedgerWatch
from apps.billing.reservations import Hold, ReservationOutcome, ReservationRequest
from apps.gateway.settlement import outbox, retransmission
from apps.gateway.settlement import settle as settlement
from apps.gateway.settlement.outbox import OutboxReader, RetransmissionBuffer, charge_of, encode
from apps.gateway.settlement.retransmission import Retransmission
from apps.kernel.ids import new_id
from apps.kernel.money import NANO
from apps.kernel.valkey import generation, redis
from apps.kernel.valkey.redis import ServerState, client
from tests.limits.limits import holds_of_key
from tests.logs.entries import entry
from tests.proofs.simulator.stores import Stores
from tests.proofs.simulator.tasks import Failure, Task

ORGANIZATIONS, WORKERS, SETTLERS = 3, 2, 2
# In units of a thousandth of a USD: what organizations begin with, and what their keys may use.
UNIT = NANO // 1000
CREDITS, KEY_LIMIT = 10, 8
# Seconds that a jump of time takes: longer than a worker's lease and than a settler keeps messages.
JUMP = 25
# Rounds within which everything must have come to rest, and calls of a store that a process makes in one.
MAX_ROUNDS, MAX_CALLS = 12, 120


@dataclass
class Asked:
    """A request: who asks, the worst case and the cost in units, and how far it came.

    Its phases are asked, reserving (it may be held), refused, admitted, answering (its record may have left) and
    answered.
    """

    id: UUID
    organization: int
    worker: int
    worst: int
    cost: int
    phase: str = "asked"
    # Its hold was lost with the store's data or with its worker's lease, and its record where only the store had it.
    is_exposed: bool = False
    may_be_lost: bool = False


@dataclass
class Worker:
    """A worker process: its name, its own memory, and reservations of which it does not know whether they are held."""

    name: str
    # How often the store had lost its data when the worker started.
    born_in: int
    retransmission: Retransmission
    buffer: RetransmissionBuffer = field(default_factory=lambda: RetransmissionBuffer(1 << 18))
    doubtful: list[tuple[str, UUID]] = field(default_factory=list)
    is_alive: bool = True


class World:
    """One history: a fresh set of organizations and processes on an emptied store."""

    def __init__(self, stores: Stores) -> None:
        client().flushall()
        # Emptying a store does not remove its scripts, so the first history would make more calls than the others.
        for source in set(redis._SOURCES) - stores.scripts:
            client().script_load(source)
            stores.scripts.add(source)
        self.run = 0
        self._stores = stores
        self.keys = stores.open_accounts(ORGANIZATIONS)
        self._owners = [key.project.organization_id for key in self.keys]
        for owner in self._owners:
            ledger.grant(owner, Decimal(CREDITS * UNIT) / NANO, "simulated")
        self.asked: dict[str, Asked] = {}
        self.tasks: dict[str, Task] = {}
        self._owner: dict[str, Worker | None] = {}
        # How often a process has done all of its periodic work.
        self._turns: Counter[str] = Counter()
        self.workers: list[Worker] = []
        # A settler's watch outlives it: the first look of a new one would repair every difference.
        self._watches = [LedgerWatch(self._server_state) for _ in range(SETTLERS)]
        for watch in self._watches:
            watch.look()
        for number in range(WORKERS):
            self._start_worker(number)
        for number in range(SETTLERS):
            self._start_settler(number)

    def _server_state(self) -> ServerState:
        return ServerState(str(self.run), 0)

    # --- moves

    def draw_move(self, chance: random.Random) -> tuple[Any, ...]:
        """Return a random next move."""
        paused = sorted(name for name, task in self.tasks.items() if not task.has_ended)
        kind = chance.random()
        if kind < 0.66:
            return "resume", chance.choice(paused), chance.randint(1, 8)
        if kind < 0.80:
            failure = chance.choice([Failure.REFUSED, Failure.LOST])
            return "fail", chance.choice(paused), failure.value, chance.randint(1, 3)
        if kind < 0.94:
            worst = chance.randint(1, 6)
            place = chance.randrange(ORGANIZATIONS), chance.randrange(WORKERS)
            return "ask", f"request {len(self.asked)}", *place, worst, chance.randint(0, worst), chance.random() < 0.3
        if kind < 0.955:
            return "kill worker", chance.randrange(WORKERS)
        if kind < 0.975:
            return "kill settler", chance.randrange(SETTLERS)
        if kind < 0.985:
            return "pay", f"payment {len(self.tasks)}", chance.randrange(ORGANIZATIONS)
        if kind < 0.995:
            return "let time pass", chance.choice([None, *range(WORKERS)])
        return ("forget",)

    def make(self, move: tuple[Any, ...]) -> None:
        """Make a move; one that does not apply changes nothing, so that a history may be shortened."""
        kind, *rest = move
        match kind:
            case "resume":
                for _ in range(rest[1]):
                    self._resume(rest[0], Failure.NONE)
            case "fail":
                for _ in range(rest[2]):
                    self._resume(rest[0], Failure(rest[1]))
            case "ask":
                self._ask(*rest)
            case "pay":
                self._pay(*rest)
            case "kill worker":
                self._kill_worker(rest[0])
            case "kill settler":
                self._kill(f"settler {rest[0]}")
                self._start_settler(rest[0])
            case "let time pass":
                self._let_time_pass(rest[0])
            case "forget":
                self._forget()

    def _add(self, name: str, work: Callable[[], object], owner: Worker | None) -> None:
        self.tasks[name], self._owner[name] = Task(work), owner

    def _resume(self, name: str, failure: Failure) -> None:
        task = self.tasks.get(name)
        if task is None or task.has_ended:
            return
        self._take_memory_of(self._owner[name])
        task.resume(failure)

    @staticmethod
    def _take_memory_of(worker: Worker | None) -> None:
        """Give the product's functions the memory of a worker's process; settlers have none of their own."""
        if worker is not None:
            outbox.BUFFER = retransmission.BUFFER = worker.buffer

    def _kill(self, name: str) -> None:
        self._take_memory_of(self._owner[name])
        self.tasks[name].kill()

    def _start_worker(self, number: int) -> None:
        worker = Worker(f"worker-{new_id()}", self.run, Retransmission(self._server_state))
        self.workers[number : number + 1] = [worker]
        name = f"worker {number}"
        self._add(name, lambda: self._beat(name, worker), worker)

    def _start_settler(self, number: int) -> None:
        reader = OutboxReader(f"settler-{new_id()}")
        name = f"settler {number}"
        self._add(name, lambda: self._settle(name, reader, self._watches[number]), None)

    def _ask(self, name: str, organization: int, worker: int, worst: int, cost: int, extends: bool) -> None:
        if name in self.asked:
            return
        one = self.asked[name] = Asked(new_id(), organization, worker, worst, cost)
        owner = self.workers[worker]
        self._add(name, lambda: self._answer(one, owner, extends=extends), owner)

    def _pay(self, name: str, organization: int) -> None:
        if name in self.tasks:
            return
        self._add(name, lambda: self._grant(organization), None)

    def _kill_worker(self, number: int) -> None:
        worker = self.workers[number]
        for name, owner in self._owner.items():
            if owner is worker:
                self._kill(name)
        worker.is_alive = False
        seen = worker.retransmission._state
        if int(seen.run if seen else worker.born_in) != self.run:
            # The store has lost data, and this worker has not pushed again.
            self._lose(worker)
        self._start_worker(number)

    def _lose(self, worker: Worker | None = None) -> None:
        """Remember that records may be lost which only the store had: of a worker, or of all that are dead."""
        for one in self.asked.values():
            owner = self._owner[next(name for name, other in self.asked.items() if other is one)]
            if owner is worker or (worker is None and owner is not None and not owner.is_alive):
                one.may_be_lost = True

    def _let_time_pass(self, stalled: int | None) -> None:
        """Let time pass; workers beat meanwhile, but for one that stalls."""
        self._stores.pass_time(JUMP)
        for number, worker in enumerate(self.workers):
            if number != stalled:
                worker_leases.send_heartbeat(worker.name)
        if stalled is not None:
            # Its reservations so far may be swept, although it is alive.
            idle = self.workers[stalled]
            self._expose(lambda one, owner: owner is idle and one.phase != "asked")

    def _forget(self) -> None:
        """Let the store lose all data, as an empty server does that takes over."""
        client().flushall()
        self.run += 1
        self._expose(lambda *_: True)
        self._lose()

    def _expose(self, is_meant: Callable[[Asked, Worker | None], bool]) -> None:
        for name, one in self.asked.items():
            if is_meant(one, self._owner[name]):
                one.is_exposed = True

    # --- what the processes do

    def _answer(self, one: Asked, worker: Worker, *, extends: bool) -> None:
        """Do what the gateway does for a request: reserve, extend, record."""
        hold = self._reserve(one, worker)
        if hold is None:
            one.phase = "refused"
            return
        one.phase = "admitted"
        if extends:
            more = UNIT
            try:
                extension = reservations.extend(hold, more, more, more)
            except RedisError:
                extension = None
            if extension is not None:
                self._note(f"extend: {extension.growth}")
            if extension is not None and extension.growth is reservations.ExtensionOutcome.HELD:
                hold, one.cost = extension.hold, one.cost + 1
        record = entry(
            self.keys[one.organization], id=one.id, cost=Decimal(one.cost * UNIT) / NANO, retention_level="none"
        )
        one.phase = "answering"
        outbox.enqueue(worker.name, encode(record), reservations.reduce_to_cost(hold, charge_of(record)))
        one.phase = "answered"

    def _reserve(self, one: Asked, worker: Worker) -> Hold | None:
        """Reserve as `admit` does: again after a lost answer, with new generations, with published balances."""
        key, owner = self.keys[one.organization], self._owners[one.organization]
        limit = KEY_LIMIT * UNIT if one.organization == 0 else None
        note = entry(key, id=one.id, swept=True, cost=None, status_code=500, has_error=True)
        for _ in range(6):
            try:
                request = ReservationRequest(
                    id=one.id,
                    worker=worker.name,
                    organization_id=owner,
                    api_key_id=key.id,
                    amount_nanos=one.worst * UNIT,
                    from_credits=True,
                    limits=holds_of_key(key.id, owner, limit),
                    catalog_token=generation.read_generation_token(generation.CATALOG),
                    organization_token=generation.read_generation_token(generation.organization_scope(owner)),
                    payload=encode(note).decode(),
                )
                one.phase = "reserving"
                answer = reservations.reserve(request)
                self._note(f"reserve: {answer.outcome}")
                if answer.outcome is ReservationOutcome.HELD:
                    return answer.hold
                if answer.outcome is ReservationOutcome.UNKNOWN:
                    scope = answer.unknown or "organization"
                    known = ledger.balances_of(scope, [owner if scope == "organization" else key.id])
                    balance_copies.repair_copies(balances.publish_or_raise(known))
                elif answer.outcome is not ReservationOutcome.STALE:
                    return None
            except (RedisError, DatabaseError):
                continue
        # As after an outage: it may be held, and is released with a heartbeat.
        worker.doubtful.append((worker.name, one.id))
        return None

    def _beat(self, name: str, worker: Worker) -> None:
        """Do a worker's periodic work."""
        while True:
            try:
                worker_leases.send_heartbeat(worker.name)
                self._note("spool replayed", outbox.replay_spool())
                self._note("doubtful reservation released", reservations.release(worker.doubtful, 0))
                worker.doubtful.clear()
                self._note("record pushed again", worker.retransmission.look())
                self._turns[name] += 1
            except (RedisError, DatabaseError, OSError):
                continue

    def _settle(self, name: str, reader: OutboxReader, watch: LedgerWatch) -> None:
        """Do a settler's work."""
        while True:
            try:
                self._note("all copies compared", watch.look() is not None)
                reader.search_again()
                if messages := reader.read(100, 0):
                    new = settlement.settle(messages)
                    self._note("record settled before", len(messages) - new)
                self._note("request swept", settlement.sweep())
                self._turns[name] += 1
            except (RedisError, DatabaseError, OSError):
                continue

    def _note(self, branch: str, times: int = 1) -> None:
        """Count a branch that was reached; other tasks may have counted it during the call that tells so."""
        self._stores.reached[branch] += times

    def _grant(self, organization: int) -> None:
        # Whether it was done or not, the ledger and the balance agree.
        with suppress(DatabaseError):
            ledger.grant(self._owners[organization], Decimal(UNIT) / NANO, "simulated")

    # --- the books

    def overrated(self) -> list[str]:
        """Return the balances of which the store believes that more is free than is, whatever requests will cost."""
        if self.run:
            # A store that forgets may take an older balance for a while.
            return []
        owed, found = self._owed(), []
        credits = {one.id: one for one in ledger.balances_of("organization", self._owners)}
        usages = {one.id: one for one in ledger.balances_of("key", [key.id for key in self.keys])}
        believed = self._believed([one.name for one in (*credits.values(), *usages.values())])
        for number, (owner, key) in enumerate(zip(self._owners, self.keys, strict=True)):
            credit, usage = credits[owner], usages[key.id]
            exposed = sum(one.cost for one in self.asked.values() if one.organization == number and one.is_exposed)
            covered = credit.nanos + (exposed - owed[number]) * UNIT
            if (copy := believed[credit.name]) is not None and (free := copy[0] - copy[1]) > covered:
                found.append(f"organization {number}: the store believes that {free} are free of {covered}")
            used = usage.nanos - (exposed - owed[number]) * UNIT
            if number == 0 and (copy := believed[usage.name]) is not None and (counted := copy[0] + copy[1]) < used:
                found.append(f"key {number}: the store believes that {counted} are used of {used}")
        return found

    def _owed(self) -> list[int]:
        """Return the units that requests under way may still be charged, by organization."""
        charged = self._charged()
        owed = [0] * ORGANIZATIONS
        for name, one in self.asked.items():
            owner = self._owner[name]
            is_alive = owner is not None and owner.is_alive
            if one.id in charged or one.is_exposed:
                continue
            if one.phase == "admitted" and is_alive:
                owed[one.organization] += one.worst
            elif one.phase == "answered":
                owed[one.organization] += one.cost
        return owed

    def _charged(self) -> dict[UUID, int]:
        """Return the units that requests were charged, by the ids of those that were."""
        charges = self._stores.read_charges([one.id for one in self.asked.values()])
        return {reference: int(-credits * NANO) // UNIT for reference, credits in charges.items()}

    def _believed(self, copies: Sequence[str]) -> dict[str, tuple[int, int] | None]:
        """Return the amount of each copy, and its held amount; None without a copy."""
        found = balance_copies.read_fields(copies, "amount", "held")
        return {
            name: None if amount is None else (int(amount), int(held or 0))
            for name, (amount, held) in zip(copies, found, strict=True)
        }

    def close(self) -> None:
        """End all processes."""
        for name in self.tasks:
            self._kill(name)

    def come_to_rest(self) -> list[str]:
        """Let every process go on without a fault until nothing moves; return what the books lack then."""
        for _ in range(MAX_ROUNDS):
            for name in list(self.tasks):
                self._let_go_on(name)
            if self._is_at_rest():
                break
            self._let_time_pass(None)
        else:
            return [f"not at rest: {self._under_way()}"]
        return [*self._wrong_requests(), *self._wrong_balances()]

    def _let_go_on(self, name: str) -> None:
        """Let a process go on until it has ended, or done all of its periodic work twice."""
        until = self._turns[name] + 2
        for _ in range(MAX_CALLS):
            if self.tasks[name].has_ended or self._turns[name] >= until:
                return
            self._resume(name, Failure.NONE)

    def _is_at_rest(self) -> bool:
        return not self._under_way()

    def _under_way(self) -> list[str]:
        store: Any = client()
        notes = [str(name) for name in store.scan_iter("notes:*")]
        asking = [name for name in self.asked if not self.tasks[name].has_ended]
        records = ["records in the stream"] if store.xlen(outbox.STREAMS[0]) else []
        dead = set(store.zrange(worker_leases.WORKERS[0], 0, -1)) - {one.name for one in self.workers}
        return [*notes, *asking, *records, *sorted(dead)]

    def _wrong_requests(self) -> Iterator[str]:
        rows = self._stores.read_rows([one.id for one in self.asked.values()])
        charged = self._charged()
        for name, one in self.asked.items():
            is_own = rows.get(one.id) is False
            if one.phase == "answered" and not is_own and not one.may_be_lost:
                yield f"{name} was answered and has no row of its own"
            if one.phase in ("asked", "reserving", "refused", "admitted") and is_own:
                yield f"{name} was never answered and has a row of its own"
            if charged.get(one.id, 0) != (one.cost if is_own else 0):
                yield f"{name} cost {one.cost} and was charged {charged.get(one.id, 0)}"

    def _wrong_balances(self) -> Iterator[str]:
        for number, key in enumerate(self.keys):
            books = self._stores.read_books(key)
            if books.credits != books.entries:
                yield f"organization {number} has {books.credits}, its ledger {books.entries}"
            exposed = sum(one.cost for one in self.asked.values() if one.organization == number and one.is_exposed)
            if books.credits * NANO < -exposed * UNIT:
                yield f"organization {number} has {books.credits}, with {exposed} exposed"
            if number == 0 and books.usage * NANO > (KEY_LIMIT + exposed) * UNIT:
                yield f"key {number} used {books.usage}, with {exposed} exposed"
        yield from self._wrong_copies(ledger.balances_of("organization", self._owners))
        yield from self._wrong_copies(ledger.balances_of("key", [key.id for key in self.keys]))

    def _wrong_copies(self, true: list[balances.Balance]) -> Iterator[str]:
        believed = self._believed([balance.name for balance in true])
        for balance in true:
            if (copy := believed[balance.name]) is not None and copy[1] != 0:
                yield f"{balance.name} holds {copy[1]}"
            if copy is not None and copy[0] != balance.nanos:
                yield f"{balance.name} says {copy[0]}, the ledger {balance.nanos}"

"""Reservations under any sequence of events: holds always equal the sum of the promises, and never exceed it."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from apps.billing import balances, reservations
from apps.billing.balances import Balance
from apps.billing.ledger import Charge
from apps.billing.reservations import ExtensionOutcome, Hold, ReservationOutcome, ReservationRequest, flight_key
from apps.gateway.settlement import outbox
from apps.kernel.ids import new_id
from apps.kernel.money import NANO
from apps.kernel.valkey import generation
from apps.kernel.valkey.redis import client
from tests.limits.limits import holds_of_key
from tests.support.property_examples import MANY_WITH_STORES, examples

DOLLAR = 10**9
amounts = st.sampled_from([1, DOLLAR // 10, DOLLAR // 3, DOLLAR // 2, DOLLAR]) | st.integers(0, DOLLAR // 2)
numbers = st.integers(0, 1_000)


class Promises(RuleBasedStateMachine):
    """Two keys of one organization, two workers, and everything that can happen to their requests.

    The ledger's truth is kept here, as is what ought to be held; Valkey is asked after each step.
    """

    def __init__(self) -> None:
        super().__init__()
        self.organization = new_id()
        self.workers = (f"worker-{new_id()}", f"worker-{new_id()}")
        self.limits: dict[UUID, int | None] = {new_id(): DOLLAR, new_id(): None}
        self.credits, self.version = DOLLAR, 1
        self.usage = dict.fromkeys(self.limits, 0)
        # By its id, each open reservation: the request, and what it will cost in the end.
        self.open: dict[UUID, ReservationRequest] = {}
        # The amount that each of them was granted and now holds, as the store knows it and as its worker does.
        self.granted: dict[UUID, int] = {}
        self.known: dict[UUID, Hold] = {}
        # Answered and charged in the ledger, not yet released.
        self.charged: dict[UUID, ReservationRequest] = {}
        # Those that are not in flight any more.
        self.landed: set[UUID] = set()
        self.dead: list[ReservationRequest] = []
        self.publish()

    def publish(self) -> None:
        """Move the copies forward, as the settler does."""
        self.version += 1
        balances.publish_or_raise(
            [
                Balance("organization", self.organization, Decimal(self.credits) / NANO, self.version),
                *(Balance("key", key, Decimal(used) / NANO, self.version) for key, used in self.usage.items()),
            ]
        )

    def held(self, scope: balances.Scope, identifier: UUID) -> int:
        """Return what Valkey says is held."""
        return int(client().hget(balances.key(scope, identifier), "held") or 0)

    def promised(self, key: UUID | None = None) -> int:
        """Return the amount that is rightly held: on the key, or on the organization."""
        every = [*self.open.values(), *self.charged.values()]
        if key is None:
            return sum(self.granted[one.id] for one in every if one.from_credits)
        return sum(self.granted[one.id] for one in every if one.api_key_id == key and one.limits is not None)

    def room(self, request: ReservationRequest) -> int | None:
        """Return what could be held for a request beside all that is, None where nothing limits it."""
        limit = self.limits[request.api_key_id]
        left = [] if limit is None else [limit - self.usage[request.api_key_id] - self.promised(request.api_key_id)]
        return min([*left, *([self.credits - self.promised()] if request.from_credits else [])], default=None)

    def share(self, request: ReservationRequest, room: int | None, part: int) -> float:
        """Return what may be granted of more than a 16th: a quarter where next to nothing is held, else less."""
        if room is None:
            return 0
        limit, key = self.limits[request.api_key_id], request.api_key_id
        counted = [] if limit is None else [(limit - self.usage[key], self.promised(key))]
        counted += [(self.credits, self.promised())] if request.from_credits else []
        if all(held * 16 <= amount - held for amount, held in counted):
            return room / 4
        return min(room, max(room / 16, min(part, min(amount for amount, _ in counted) / 32)))

    @rule(
        amount=amounts,
        which=numbers,
        worker=st.sampled_from((0, 1)),
        paid=st.booleans(),
        most=st.sampled_from([100, 100, 3]),
        least=st.integers(0, 100),
        part=st.integers(0, 100),
    )
    def reserve(self, amount: int, which: int, worker: int, paid: bool, most: int, least: int, part: int) -> None:
        """Ask for a promise; it is made exactly when there is room for the least of it, and never of more than that."""
        key = list(self.limits)[which % 2]
        request = ReservationRequest(
            id=new_id(),
            worker=self.workers[worker],
            organization_id=self.organization,
            api_key_id=key,
            amount_nanos=amount,
            from_credits=paid,
            limits=holds_of_key(key, self.organization, self.limits[key]),
            catalog_token=generation.read_generation_token(generation.CATALOG),
            organization_token=generation.read_generation_token(generation.organization_scope(self.organization)),
            payload="{}",
            most_in_flight=most,
            part_nanos=amount * part // 100,
            least_nanos=amount * least // 100,
        )
        fewest = amount * least // 100
        flying = client().zcard(flight_key(self.organization))
        limit = self.limits[key]
        left_of_limit = None if limit is None else limit - self.usage[key] - self.promised(key)
        left_of_credits = self.credits - self.promised() if paid else None
        room = self.room(request)
        share = self.share(request, room, amount * part // 100)
        answer = reservations.reserve(request)
        outcome = answer.outcome
        if flying >= most:
            assert outcome is ReservationOutcome.TOO_MANY
        elif left_of_limit is not None and (left_of_limit < fewest or left_of_limit <= 0):
            assert outcome is ReservationOutcome.OVER_LIMIT
        elif left_of_credits is not None and (left_of_credits < fewest or left_of_credits <= 0):
            assert outcome is ReservationOutcome.NO_CREDITS
        else:
            assert outcome is ReservationOutcome.HELD
            assert answer.hold is not None
            self.open[request.id] = request
            self.took(request, answer.hold, amount, fewest, room, share)

    def took(
        self,
        request: ReservationRequest,
        hold: Hold,
        want: int,
        least: int,
        room: int | None,
        share: float,
    ) -> None:
        """Note the grant: the wanted amount, or a useful part that leaves most of the remainder to others."""
        before = self.granted.get(request.id, 0)
        granted = hold.amount_nanos - before
        if room is None or want <= room / 16:
            assert granted == want
        else:
            assert granted == int(max(least, min(want, share)))
            assert granted <= room
        self.granted[request.id], self.known[request.id] = hold.amount_nanos, hold

    @precondition(lambda self: self.open)
    @rule(which=numbers, want=amounts, least=st.integers(1, 100), part=st.integers(0, 100), lost=st.booleans())
    def extend(self, which: int, want: int, least: int, part: int, lost: bool) -> None:
        """Hold more for a request under way, exactly when there is room; its answer may get lost on its way."""
        request = list(self.open.values())[which % len(self.open)]
        hold, room = self.known[request.id], self.room(request)
        fewest, useful = want * least // 100, want * part // 100
        share = self.share(request, room, useful)
        behind = hold.amount_nanos != self.granted[request.id]
        extended = reservations.extend(hold, want, useful, fewest)
        if behind:
            # The worker now learns of the earlier hold that it did not know about, and nothing is added.
            assert (extended.growth, extended.hold.amount_nanos) == (ExtensionOutcome.HELD, self.granted[request.id])
            self.known[request.id] = extended.hold
        elif room is not None and (room < fewest or room <= 0):
            assert (extended.growth, extended.hold) == (ExtensionOutcome.SHORT, hold)
        else:
            assert extended.growth is ExtensionOutcome.HELD
            self.took(request, extended.hold, want, fewest, room, share)
            if lost:
                self.known[request.id] = hold
            again = reservations.extend(hold, want, useful, fewest)
            assert (again.growth, again.hold) == (ExtensionOutcome.HELD, extended.hold) or want == 0 or fewest == 0

    @precondition(lambda self: self.open)
    @rule(which=numbers, share=st.integers(0, 130))
    def answer(self, which: int, share: int) -> None:
        """A request has been answered: it goes on holding what it cost, whatever its worker knows of extensions."""
        request = self.open.pop(list(self.open)[which % len(self.open)])
        cost = self.granted[request.id] * share // 100
        charge = Charge(
            self.organization,
            request.api_key_id,
            request.id,
            -Decimal(cost if request.from_credits else 0) / NANO,
            Decimal(cost) / NANO,
        )
        settled = reservations.reduce_to_cost(self.known[request.id], charge)
        for _ in range(2):
            outbox.push(request.worker, b"{}", settled)
        self.granted[request.id] = cost
        self.landed.add(request.id)
        late = reservations.extend(self.known[request.id], DOLLAR, DOLLAR, 0)
        assert late.growth is ExtensionOutcome.GONE
        self.credits -= cost if request.from_credits else 0
        self.usage[request.api_key_id] += cost
        self.charged[request.id] = request
        self.publish()

    @precondition(lambda self: self.open)
    @rule(which=numbers)
    def ask_again(self, which: int) -> None:
        """The answer was lost on its way and the question is asked again: it is held once."""
        request = list(self.open.values())[which % len(self.open)]
        assert reservations.reserve(request).outcome is ReservationOutcome.HELD

    @precondition(lambda self: self.open)
    @rule(which=numbers, share=st.integers(0, 130))
    def charge(self, which: int, share: int) -> None:
        """A request has been answered: the ledger has it, for less than was held or for more."""
        request = self.open.pop(list(self.open)[which % len(self.open)])
        cost = self.granted[request.id] * share // 100
        self.credits -= cost if request.from_credits else 0
        self.usage[request.api_key_id] += cost
        self.charged[request.id] = request
        self.publish()

    @precondition(lambda self: self.charged)
    @rule(which=numbers)
    def release(self, which: int) -> None:
        """The settler's second step, which it may repeat after its own death."""
        request = self.charged.pop(list(self.charged)[which % len(self.charged)])
        pairs = [(request.worker, request.id)]
        assert [reservations.release(pairs, 0), reservations.release(pairs, 0)] == [1, 0]

    @precondition(lambda self: self.open)
    @rule(worker=st.sampled_from((0, 1)))
    def sweep(self, worker: int) -> None:
        """A worker has died: what it left is found by its notes, and given back."""
        name = self.workers[worker]
        notes = reservations.notes_of(name, 0)
        mine = {one.id for one in [*self.open.values(), *self.charged.values()] if one.worker == name}
        assert set(notes) == mine
        assert reservations.release([(name, identifier) for identifier in notes], 0) == len(mine)
        for identifier in mine:
            self.open.pop(identifier, None)
            self.charged.pop(identifier, None)

    @rule()
    def publish_something_old(self) -> None:
        """A copy that was late on its way changes nothing."""
        balances.publish_or_raise([Balance("organization", self.organization, Decimal(1_000), self.version - 1)])

    @invariant()
    def what_is_held_is_what_is_promised(self) -> None:
        """To the last billionth; and so are the notes and those in flight."""
        assert self.held("organization", self.organization) == self.promised()
        for key in self.limits:
            assert self.held("key", key) == self.promised(key)
        every = {**self.open, **self.charged}
        assert {identifier for worker in self.workers for identifier in reservations.notes_of(worker, 0)} == set(every)
        assert client().zcard(flight_key(self.organization)) == len(every.keys() - self.landed)


Promises.TestCase.settings = settings(
    max_examples=examples(40, long=MANY_WITH_STORES),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestPromises = Promises.TestCase

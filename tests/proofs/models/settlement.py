"""Admission and settlement: reserve credits, record the answer, charge it once, and leave nothing held.

Two requests of one worker, two settlers, one organization. The worker reserves the worst case in Valkey, where the note
is the write-ahead mark; with the answer, its record goes to the stream and the hold falls to the cost. A settler
commits the row and the charge to PostgreSQL, publishes the balance to its copy in Valkey, releases the hold, and only
then acknowledges the record. The code: `apps/billing/reservations.py`, `apps/gateway/settlement`; docs/adr/0002, 0079.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tests.proofs.models.checker import Moves, Predicates

CREDITS, WORST, COSTS = 3, 2, (1, 2)


@dataclass(frozen=True)
class Rules:
    """The rules of the protocol. Without any one of them, a promise breaks."""

    # An id has one row and one charge; only the sweeper's row is replaced, by the worker's own record.
    a_request_is_written_once: bool = True
    # Asked again because the answer was lost: the note shows that it is already held.
    a_reservation_is_held_once: bool = True
    # A push changes the held amount by the note in the store: one that comes twice finds the cost there.
    a_push_reduces_what_the_note_says: bool = True
    the_cost_stays_held_until_it_is_charged: bool = True
    charged_before_it_is_released: bool = True
    published_before_it_is_released: bool = True
    acknowledged_last: bool = True
    copies_only_move_forward: bool = True
    # The store may have evicted the copy, and the held amount with it.
    a_new_copy_sums_the_notes: bool = True
    # The settler that charged may have died before it published.
    a_known_record_is_published_again: bool = True
    workers_push_again_after_the_store_forgot: bool = True
    spooled_records_are_replayed: bool = True
    dead_workers_are_swept: bool = True
    sweepers_release_recorded_holds_after_the_stream: bool = True


class Request(NamedTuple):
    """A request: at its worker (new, open, recorded, spooled, lost), its note, its row, and its charges."""

    phase: str = "new"
    note: str = ""  # or "open" (holds the worst case), "recorded" (holds the cost)
    row: str = ""  # or "swept", "own"
    charges: int = 0
    # Its hold was lost with the store's data, or released because its worker was taken for dead.
    is_exposed: bool = False


class Message(NamedTuple):
    """A record in the stream; `number` tells copies of a record apart."""

    request: int
    is_swept: bool
    number: int


class Balance(NamedTuple):
    """Credits as of a version of the ledger."""

    amount: int
    version: int


class Settler(NamedTuple):
    """A settler's messages, the stages that it has done, and the balance that it has to publish."""

    batch: tuple[Message, ...] = ()
    done: int = 0
    balance: Balance | None = None


class State(NamedTuple):
    """PostgreSQL's balance, Valkey's copy of it (none: evicted), held amount and stream, and the processes."""

    ledger: Balance = Balance(CREDITS, 0)
    requests: tuple[Request, ...] = (Request(),) * len(COSTS)
    copy: Balance | None = None
    held: int = 0
    stream: tuple[Message, ...] = ()
    # Messages that a settler has been given.
    taken: frozenset[Message] = frozenset()
    settlers: tuple[Settler, ...] = (Settler(), Settler())
    is_worker_alive: bool = True
    # A balance that the worker has read, to publish it.
    read: Balance | None = None
    # The worker has not noticed yet that the store lost its data; and whether it ever did.
    is_store_new: bool = False
    has_forgotten: bool = False
    # A copy was evicted while a publication was under way: the older balance may be taken until the next one.
    is_overtaken: bool = False


class Settlement:
    """The model; `rules` may lack one."""

    def __init__(self, rules: Rules = Rules()) -> None:
        self.rules = rules
        self.stages = ["commit", "publish", "release", "acknowledge"]
        if not rules.charged_before_it_is_released:
            self.stages = ["release", "commit", "publish", "acknowledge"]
        if not rules.published_before_it_is_released:
            self.stages = ["commit", "release", "publish", "acknowledge"]
        if not rules.acknowledged_last:
            self.stages = ["acknowledge", "commit", "publish", "release"]
        self.invariants: Predicates[State] = {
            "a request is charged at most once": lambda state: all(one.charges <= 1 for one in state.requests),
            "spending stays within credits": lambda state: state.is_overtaken or state.ledger.amount >= -exposed(state),
            "the store never believes that more is free than is": _believes_at_most_the_truth,
        }
        self.promises: Predicates[State] = {
            "every answered request is charged": _answered_is_charged,
            "every admitted request has a row": _admitted_has_row,
            "nothing stays held": _holds_nothing,
            "the copy says what the ledger says": lambda state: state.copy in (None, state.ledger),
        }

    def initial(self) -> State:
        """Return the state before the first request."""
        return State()

    def steps(self, state: State) -> Moves[State]:
        """Yield the steps of the worker, the settlers and the sweeper."""
        if state.is_worker_alive:
            yield from self._worker_steps(state)
        else:
            yield from self._sweeper_steps(state)
        if self.rules.spooled_records_are_replayed:
            yield "spool is replayed", _replay_spool(state)
        is_behind = state.copy is not None and state.copy.version < state.ledger.version
        if is_behind and not any(settler.batch for settler in state.settlers):
            # The ledger watch (`ledger_epochs.py`): a settler committed, and died before it published.
            yield "watch moves the copy forward", state._replace(copy=state.ledger)
        for name, settler in enumerate(state.settlers):
            waiting = tuple(message for message in state.stream if message not in state.taken)
            if settler.batch:
                stage = self.stages[settler.done]
                yield f"settler {name} {stage}", getattr(self, f"_{stage}")(_advance(state, name), name, settler)
            elif waiting:
                yield (
                    f"settler {name} read",
                    _settler(state, name, Settler(waiting))._replace(taken=state.taken | set(waiting)),
                )

    def _worker_steps(self, state: State) -> Moves[State]:
        if state.copy is None and state.read is None:
            yield "worker reads balance", state._replace(read=state.ledger)
        if state.read is not None:
            yield "worker publishes balance", self._published(state, state.read)._replace(read=None)
        for number, request in enumerate(state.requests):
            if request.phase == "new":
                yield f"worker reserves {number}", self._reserve(state, number, is_answered=True)
            if request.phase == "open":
                yield f"worker records {number}", self._record(state, number)
        if state.is_store_new and self.rules.workers_push_again_after_the_store_forgot:
            again = state._replace(is_store_new=False)
            for number, request in enumerate(state.requests):
                if request.phase == "recorded" and request.row != "own":
                    again = _push(again, number)
            yield "worker pushes again", again

    def _sweeper_steps(self, state: State) -> Moves[State]:
        is_under_way = any(message.is_swept for message in state.stream)
        if not self.rules.dead_workers_are_swept or is_under_way:
            return
        swept, was_empty = state, not state.stream
        for number, request in enumerate(state.requests):
            if request.note == "open":
                swept = _push(swept, number, is_swept=True)
            elif was_empty or not self.rules.sweepers_release_recorded_holds_after_the_stream:
                swept = _release(swept, number)
        yield "sweeper sweeps", swept

    def faults(self, state: State) -> Moves[State]:
        """Yield what may go wrong: lost answers, repeated and refused pushes, deaths, and a store that forgets."""
        if state.is_worker_alive:
            lost = [one._replace(phase="lost") if one.phase in ("new", "open") else one for one in state.requests]
            yield "worker dies", state._replace(is_worker_alive=False, requests=tuple(lost), read=None)
            for number, request in enumerate(state.requests):
                if request.phase == "new" and (held := self._reserve(state, number, is_answered=False)) != state:
                    yield f"answer to reservation {number} is lost", held
                if request.phase == "open":
                    yield f"record {number} goes to the spool", _with(state, number, phase="spooled")
                if request.phase == "recorded":
                    yield f"record {number} is pushed twice", self._record(state, number)
        for name, settler in enumerate(state.settlers):
            if settler.batch:
                claimable = state._replace(taken=state.taken - set(settler.batch))
                yield f"settler {name} dies", _settler(claimable, name, Settler())
                if claimable != state:
                    yield f"settler {name} stalls", claimable
        is_overtaken = state.is_overtaken or state.read is not None or any(one.balance for one in state.settlers)
        evicted = state._replace(copy=None, held=0, is_overtaken=is_overtaken)
        if state.copy is not None:
            yield "store evicts the copy", evicted
        forgotten = [one._replace(note="", is_exposed=_is_owed(one) or one.is_exposed) for one in state.requests]
        yield (
            "store forgets",
            evicted._replace(
                requests=tuple(forgotten), stream=(), taken=frozenset(), is_store_new=True, has_forgotten=True
            ),
        )

    def _reserve(self, state: State, number: int, *, is_answered: bool) -> State:
        phase = "open" if is_answered else "new"
        if state.requests[number].note and self.rules.a_reservation_is_held_once:
            return _with(state, number, phase=phase)
        if state.copy is None or state.copy.amount - state.held < WORST:
            return state
        return _with(state, number, phase=phase, note="open")._replace(held=state.held + WORST)

    def _record(self, state: State, number: int) -> State:
        """Push the record, and reduce the hold to the cost in the same step."""
        request, stays = state.requests[number], COSTS[number]
        if not self.rules.the_cost_stays_held_until_it_is_charged:
            stays = 0
        freed = 0
        if request.note == "open" or (request.note and not self.rules.a_push_reduces_what_the_note_says):
            freed = WORST - stays
        recorded = _with(state, number, phase="recorded", note=request.note and "recorded")
        return _push(recorded._replace(held=state.held - freed), number)

    def _commit(self, state: State, name: int, settler: Settler) -> State:
        """Write rows and charges in one transaction."""
        amount = state.ledger.amount
        for number, is_swept, _ in settler.batch:
            request = state.requests[number]
            replaces = request.row == "swept" and not is_swept
            if not request.row or replaces or not self.rules.a_request_is_written_once:
                cost = 0 if is_swept else COSTS[number]
                row = "swept" if is_swept else "own"
                state = _with(state, number, row=row, charges=request.charges + bool(cost))
                amount -= cost
        is_charged = amount != state.ledger.amount
        ledger = Balance(amount, state.ledger.version + is_charged)
        is_told = is_charged or self.rules.a_known_record_is_published_again
        state = state._replace(ledger=ledger)
        return _settler(state, name, state.settlers[name]._replace(balance=ledger if is_told else None))

    def _publish(self, state: State, name: int, settler: Settler) -> State:
        if settler.balance is None:
            return state
        return _settler(self._published(state, settler.balance), name, state.settlers[name]._replace(balance=None))

    def _published(self, state: State, balance: Balance) -> State:
        """Move the copy forward; a new one holds the sum of the notes."""
        if state.copy is None:
            held = sum(map(_held_by, range(len(COSTS)), state.requests)) if self.rules.a_new_copy_sums_the_notes else 0
            return state._replace(copy=balance, held=held)
        if state.copy.version < balance.version or not self.rules.copies_only_move_forward:
            return state._replace(copy=balance)
        return state

    def _release(self, state: State, name: int, settler: Settler) -> State:
        for number, is_swept, _ in settler.batch:
            if is_swept and state.requests[number].phase != "lost":
                # Its worker lived, or its own record came later than the sweeper's.
                state = _with(state, number, is_exposed=True)
            state = _release(state, number)
        return state

    def _acknowledge(self, state: State, name: int, settler: Settler) -> State:
        stream = tuple(message for message in state.stream if message not in settler.batch)
        return state._replace(stream=stream, taken=state.taken - set(settler.batch))


def exposed(state: State) -> int:
    """Return the costs of requests whose holds were lost."""
    return sum(cost for cost, request in zip(COSTS, state.requests, strict=True) if request.is_exposed)


def _believes_at_most_the_truth(state: State) -> bool:
    """Return whether the copy's free amount is covered, whatever the requests under way will cost."""
    if state.copy is None or state.is_overtaken:
        return True
    owed = sum(_owed(number, request) for number, request in enumerate(state.requests) if not request.is_exposed)
    return state.copy.amount - state.held <= state.ledger.amount - owed + exposed(state)


def _is_owed(request: Request) -> bool:
    return request.phase in ("open", "recorded", "spooled") and not request.charges


def _owed(number: int, request: Request) -> int:
    """Return the amount that a request may still be charged."""
    if not _is_owed(request):
        return 0
    return WORST if request.phase == "open" else COSTS[number]


def _answered_is_charged(state: State) -> bool:
    # The documented limit: a record that only the store had, when both the store's data and its worker are gone.
    is_excused = state.has_forgotten and not state.is_worker_alive
    return is_excused or all(one.charges == 1 for one in state.requests if one.phase in ("recorded", "spooled"))


def _admitted_has_row(state: State) -> bool:
    return state.has_forgotten or all(one.row for one in state.requests if one.phase in ("open", "recorded", "spooled"))


def _holds_nothing(state: State) -> bool:
    # Without a copy, the amount is summed from the notes when there is one again.
    return not any(one.note for one in state.requests) and (state.copy is None or state.held == 0)


def _held_by(number: int, request: Request) -> int:
    return {"": 0, "open": WORST, "recorded": COSTS[number]}[request.note]


def _push(state: State, number: int, *, is_swept: bool = False) -> State:
    known = {*state.stream, *(message for settler in state.settlers for message in settler.batch)}
    message = Message(number, is_swept, max((one.number for one in known), default=-1) + 1)
    return state._replace(stream=(*state.stream, message))


def _replay_spool(state: State) -> State:
    for number, request in enumerate(state.requests):
        if request.phase == "spooled":
            state = _push(_with(state, number, phase="recorded"), number)
    return state


def _release(state: State, number: int) -> State:
    held = state.held - _held_by(number, state.requests[number])
    return _with(state, number, note="")._replace(held=held)


def _with(state: State, number: int, **changes: object) -> State:
    """Return the state with a changed request."""
    requests = list(state.requests)
    requests[number] = requests[number]._replace(**changes)
    return state._replace(requests=tuple(requests))


def _settler(state: State, name: int, settler: Settler) -> State:
    settlers = list(state.settlers)
    settlers[name] = settler
    return state._replace(settlers=tuple(settlers))


def _advance(state: State, name: int) -> State:
    """Return the state with a settler's next stage begun, and at the end with none of its batch left."""
    settler = state.settlers[name]
    is_last = settler.done == 3
    return _settler(state, name, Settler() if is_last else settler._replace(done=settler.done + 1))

"""Shards: an organization's money is in one shard of the store, and a shard that is away holds up no other.

Two organizations, one in each of two shards, three requests, and one settler that settles records of both shards in
one transaction. The second organization has credits for one of its two requests. The code:
`apps/kernel/valkey/redis.py`, `apps/kernel/valkey/shards.py`, `apps/gateway/settlement`; docs/adr/0217.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tests.proofs.models.checker import Moves, Predicates

SHARDS = ORGANIZATIONS = range(2)
# By request; each costs 1, and each organization has credits of 1.
ORGANIZATION_OF = (0, 1, 1)


@dataclass(frozen=True)
class Rules:
    """The rules of the protocol. Without any one of them, a promise breaks."""

    # It would keep the same organization's credits in another shard beside the others.
    a_process_with_another_count_is_refused: bool = True
    a_record_goes_to_the_shard_of_its_hold: bool = True
    # The settler acknowledges nothing of a batch that it has not released in every shard.
    a_batch_is_acknowledged_after_all_releases: bool = True
    a_record_without_its_shard_is_spooled: bool = True
    each_shard_is_swept: bool = True
    # A shard that is away fails for itself.
    other_shards_are_read_meanwhile: bool = True


class Request(NamedTuple):
    """A request: at its worker (new, open, recorded, spooled, lost), the shard of its hold, and its row."""

    phase: str = "new"
    shard: int | None = None
    row: str = ""  # or "swept", "own"


class Message(NamedTuple):
    """A record in a shard's stream."""

    shard: int
    request: int
    is_swept: bool = False


class State(NamedTuple):
    """Both shards, the ledger, the worker, and the settler's batch with the shards that it has released."""

    requests: tuple[Request, ...] = (Request(),) * len(ORGANIZATION_OF)
    credits: tuple[int, ...] = (1, 1)
    # By shard and organization: the copy of the credits, none before it is read.
    copies: tuple[tuple[int | None, ...], ...] = ((None, None), (None, None))
    streams: frozenset[Message] = frozenset()
    away: frozenset[int] = frozenset()
    # The number of shards that the worker was started with, and whether it runs.
    count: int = len(SHARDS)
    is_worker_alive: bool = True
    batch: frozenset[Message] = frozenset()
    is_committed: bool = False
    released: frozenset[int] = frozenset()


class Shards:
    """The model; `rules` may lack one."""

    def __init__(self, rules: Rules = Rules()) -> None:
        self.rules = rules
        self.invariants: Predicates[State] = {
            "spending stays within credits": lambda state: min(state.credits) >= 0,
        }
        self.promises: Predicates[State] = {
            "every answered request has its row": lambda state: all(
                one.row == "own"
                for number, one in enumerate(state.requests)
                if one.phase in ("recorded", "spooled") and ORGANIZATION_OF[number] not in state.away
            ),
            "nothing stays held": lambda state: all(
                one.shard is None or one.shard in state.away for one in state.requests
            ),
        }

    def initial(self) -> State:
        """Return the state before the first request."""
        return State()

    def steps(self, state: State) -> Moves[State]:
        """Yield the steps of the worker, the sweeper and the settler."""
        for number, request in enumerate(state.requests):
            if request.phase == "new" and state.is_worker_alive:
                yield f"worker reserves {number}", self._reserve(state, number)
            if request.phase == "open" and state.is_worker_alive:
                yield f"worker records {number}", self._record(state, number)
            if request.phase == "spooled" and ORGANIZATION_OF[number] not in state.away:
                pushed = Message(ORGANIZATION_OF[number], number)
                yield (
                    f"spool replays {number}",
                    _with(state, number, phase="recorded")._replace(streams=state.streams | {pushed}),
                )
            if not state.is_worker_alive and request.shard is not None:
                yield f"sweeper records {number}", self._sweep(state, number, request.shard)
        yield from self._settler_steps(state)

    def _settler_steps(self, state: State) -> Moves[State]:
        if not state.batch:
            readable = frozenset(one for one in state.streams if one.shard not in state.away)
            if not self.rules.other_shards_are_read_meanwhile and state.away:
                readable = frozenset()
            if readable:
                yield "settler reads", state._replace(batch=readable)
        elif not state.is_committed:
            yield "settler commits and publishes", self._commit(state)
        else:
            left = {one.shard for one in state.batch} - state.released
            for shard in left:
                yield f"settler releases in {shard}", self._release(state, shard)
            if not left:
                yield (
                    "settler acknowledges",
                    state._replace(
                        streams=state.streams - state.batch, batch=frozenset(), is_committed=False, released=frozenset()
                    ),
                )

    def faults(self, state: State) -> Moves[State]:
        """Yield a worker that dies or is configured with another count, a settler that dies, shards away and back."""
        if state.is_worker_alive:
            lost = [one._replace(phase="lost") if one.phase in ("new", "open") else one for one in state.requests]
            yield "worker dies", state._replace(is_worker_alive=False, requests=tuple(lost))
            if not self.rules.a_process_with_another_count_is_refused:
                yield "worker starts with one shard", state._replace(count=1)
        if state.batch:
            yield "settler dies", _forget_batch(state)
        for shard in set(SHARDS) - state.away:
            yield f"shard {shard} is away", state._replace(away=state.away | {shard})
        for shard in state.away:
            yield f"shard {shard} is back", state._replace(away=state.away - {shard})

    def _reserve(self, state: State, number: int) -> State:
        """Hold the cost in the organization's shard, with the ledger's credits where it has no copy."""
        organization = ORGANIZATION_OF[number]
        shard = organization % state.count
        if shard in state.away:
            return state
        if state.copies[shard][organization] is None:
            return _copy(state, shard, organization)
        owners = [one.shard == shard and ORGANIZATION_OF[at] == organization for at, one in enumerate(state.requests)]
        if (state.copies[shard][organization] or 0) - sum(owners) < 1:
            return state
        return _with(state, number, phase="open", shard=shard)

    def _record(self, state: State, number: int) -> State:
        shard = state.requests[number].shard
        if not self.rules.a_record_goes_to_the_shard_of_its_hold:
            shard = 0
        if shard is None or shard in state.away:
            spooled = "spooled" if self.rules.a_record_without_its_shard_is_spooled else "recorded"
            return _with(state, number, phase=spooled)
        return _with(state, number, phase="recorded")._replace(streams=state.streams | {Message(shard, number)})

    def _sweep(self, state: State, number: int, shard: int) -> State:
        is_waiting = any(one.request == number for one in state.streams)
        if shard in state.away or is_waiting or (shard > 0 and not self.rules.each_shard_is_swept):
            return state
        return state._replace(streams=state.streams | {Message(shard, number, is_swept=True)})

    def _commit(self, state: State) -> State:
        """Write rows and charges in one transaction, then publish; a shard that is away fails the whole batch."""
        changed = set[int]()
        for _, number, is_swept in sorted(state.batch):
            row, organization = state.requests[number].row, ORGANIZATION_OF[number]
            if not is_swept and row != "own":
                credits = list(state.credits)
                credits[organization] -= 1
                state = _with(state, number, row="own")._replace(credits=tuple(credits))
            elif not row:
                state = _with(state, number, row="swept")
            changed.add(organization)
        if state.away & {one.shard for one in state.batch}:
            return _forget_batch(state)
        for organization in changed:
            state = _copy(state, organization, organization)
        return state._replace(is_committed=True)

    def _release(self, state: State, shard: int) -> State:
        if shard in state.away:
            if not self.rules.a_batch_is_acknowledged_after_all_releases:
                return state._replace(released=state.released | {shard})
            return _forget_batch(state)
        for number in [one.request for one in state.batch if one.shard == shard]:
            # A note of another shard is not there.
            if state.requests[number].shard == shard:
                state = _with(state, number, shard=None)
        return state._replace(released=state.released | {shard})


def _forget_batch(state: State) -> State:
    return state._replace(batch=frozenset(), is_committed=False, released=frozenset())


def _copy(state: State, shard: int, organization: int) -> State:
    """Return the state with the ledger's credits as a shard's copy."""
    copies = [list(row) for row in state.copies]
    copies[shard][organization] = state.credits[organization]
    return state._replace(copies=tuple(map(tuple, copies)))


def _with(state: State, number: int, **changes: object) -> State:
    """Return the state with a changed request."""
    requests = list(state.requests)
    requests[number] = requests[number]._replace(**changes)
    return state._replace(requests=tuple(requests))

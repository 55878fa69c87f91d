"""Worker leases and the sweeper: a worker that stops is found by its lease, and what it reserved comes back.

One request of one worker, and two settlers that sweep, with every round trip a step of its own; settlement is one step
here (`settlement.py` has its parts). A worker may stall for longer than its lease and go on: what it reserved before
may be swept, what it reserves afterwards is held as any other's. The code: `apps/billing/worker_leases.py`, `_RESERVE`
in `apps/billing/reservations.py`, `sweep` in `apps/gateway/settlement/settle.py`; docs/adr/0002, 0085.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tests.proofs.models.checker import Moves, Predicates

REQUESTS = range(1)


@dataclass(frozen=True)
class Rules:
    """The rules of the protocol. Without any one of them, a promise breaks."""

    # It may die before its first heartbeat.
    a_first_reservation_registers_its_worker: bool = True
    # It may have stalled, and reserve before its next heartbeat.
    a_reservation_renews_the_lease: bool = True
    # The worker may have gone on between the first look at its lease and that at its notes.
    the_lease_is_looked_at_after_the_notes: bool = True
    # In one step with a look at its notes: it may be making a reservation.
    a_worker_with_notes_is_not_removed: bool = True
    # A record leaves its note as recorded. Where the stream is empty after that was seen, it has been settled.
    the_stream_is_measured_after_the_notes: bool = True
    recorded_holds_wait_for_the_stream: bool = True
    open_notes_become_records: bool = True
    own_records_replace_the_sweepers: bool = True
    # A clock that is set forward makes every worker look dead.
    nothing_is_swept_right_after_a_clock_jump: bool = True


class Request(NamedTuple):
    """A request: at its worker (new, open, recorded, lost), its note and its row."""

    phase: str = "new"
    note: str = ""  # or "open", "recorded"
    row: str = ""  # or "swept", "own"
    # Its worker has been taken for dead, or may be, since it was reserved; it goes on without a hold.
    is_overtaken: bool = False
    is_exposed: bool = False


class Sweep(NamedTuple):
    """A sweep in progress: what it has read so far (none: not yet), and whether it has decided to remove the worker.

    `is_confirmed` is whether the lease was still over after the notes were read.
    """

    is_begun: bool = False
    notes: tuple[str, ...] | None = None
    is_confirmed: bool = False
    is_stream_empty: bool | None = None
    is_removing: bool = False


class State(NamedTuple):
    """The worker, its lease and requests in Valkey and PostgreSQL, records in the stream, and the sweeps."""

    requests: tuple[Request, ...] = (Request(),) * len(REQUESTS)
    lease: str = "none"  # or "running", "over"
    is_alive: bool = True
    # Records by request, and whether they are the sweeper's.
    stream: frozenset[tuple[int, bool]] = frozenset()
    sweeps: tuple[Sweep, ...] = (Sweep(), Sweep())
    has_clock_jumped: bool = False


class WorkerLeases:
    """The model; `rules` may lack one."""

    def __init__(self, rules: Rules = Rules()) -> None:
        self.rules = rules
        self.invariants: Predicates[State] = {
            "a cost is held until it is charged": lambda state: all(map(_is_covered, state.requests)),
            "only what a worker held when it stalled is swept while it lives": lambda state: all(
                one.is_overtaken or not one.is_exposed for one in state.requests
            ),
        }
        self.promises: Predicates[State] = {
            "every request has its row": lambda state: all(
                one.row == "own" for one in state.requests if one.phase == "recorded"
            ),
            "nothing stays held": lambda state: not any(one.note for one in state.requests),
            "a dead worker is forgotten": lambda state: state.is_alive or state.lease == "none",
        }

    def initial(self) -> State:
        """Return the state of a worker that has just started."""
        return State()

    def steps(self, state: State) -> Moves[State]:
        """Yield the steps of the worker, the passing of its lease, settlement, and the steps of both sweeps."""
        if state.is_alive:
            yield "worker sends heartbeat", state._replace(lease="running", has_clock_jumped=False)
            for number in REQUESTS:
                if state.requests[number].phase == "new":
                    yield f"worker reserves {number}", self._reserve(state, number)
                if state.requests[number].phase == "open":
                    yield f"worker records {number}", _record(state, number)
        else:
            if state.lease == "running":
                yield "lease ends", state._replace(lease="over")
            yield "ten seconds pass", state._replace(has_clock_jumped=False)
        if state.stream:
            yield "settler settles", self._settle(state)
        for name, sweep in enumerate(state.sweeps):
            yield from self._sweep_steps(state, name, sweep)

    def _sweep_steps(self, state: State, name: int, sweep: Sweep) -> Moves[State]:
        is_steady = not state.has_clock_jumped or not self.rules.nothing_is_swept_right_after_a_clock_jump
        if not sweep.is_begun:
            if state.lease == "over" and is_steady and not any(one.is_swept for one in _records(state)):
                yield f"sweeper {name} finds the worker", _sweep(state, name, Sweep(is_begun=True))
        elif sweep.is_removing:
            yield f"sweeper {name} removes the worker", _sweep(state._replace(lease="none"), name, Sweep())
        elif sweep.notes is None and (
            sweep.is_stream_empty is not None or self.rules.the_stream_is_measured_after_the_notes
        ):
            read = sweep._replace(notes=tuple(one.note for one in state.requests))
            yield f"sweeper {name} reads notes", _sweep(state, name, read)
        elif sweep.notes is not None and not sweep.is_confirmed and self.rules.the_lease_is_looked_at_after_the_notes:
            confirmed = sweep._replace(is_confirmed=True) if state.lease == "over" else Sweep()
            yield f"sweeper {name} looks at the lease again", _sweep(state, name, confirmed)
        elif sweep.is_stream_empty is None:
            measured = sweep._replace(is_stream_empty=not state.stream)
            yield f"sweeper {name} measures stream", _sweep(state, name, measured)
        else:
            yield f"sweeper {name} ends", self._end_sweep(state, name, sweep)

    def faults(self, state: State) -> Moves[State]:
        """Yield deaths, a worker that stalls for longer than its lease, and a clock that is set forward."""
        if state.is_alive:
            lost = [one._replace(phase="lost") if one.phase in ("new", "open") else one for one in state.requests]
            yield "worker dies", state._replace(is_alive=False, requests=tuple(lost))
        if state.lease == "running":
            if state.is_alive:
                yield "worker stalls", _overtake(state)._replace(lease="over")
            # A sweep that has begun has looked at the clock before.
            jumped = _overtake(state) if any(sweep.is_begun for sweep in state.sweeps) else state
            yield "clock is set forward", jumped._replace(lease="over", has_clock_jumped=True)
        for name, sweep in enumerate(state.sweeps):
            if sweep.is_begun:
                yield f"sweeper {name} dies", _sweep(state, name, Sweep())

    def _reserve(self, state: State, number: int) -> State:
        lease = state.lease
        if lease == "none" and self.rules.a_first_reservation_registers_its_worker:
            lease = "running"
        if lease == "over" and self.rules.a_reservation_renews_the_lease:
            lease = "running"
        return _with(state, number, phase="open", note="open")._replace(lease=lease)

    def _settle(self, state: State) -> State:
        """Write rows and release holds; the worker's own record counts, also after the sweeper's."""
        for number, is_swept in sorted(state.stream):
            request = state.requests[number]
            row = request.row
            if not is_swept and (not row or self.rules.own_records_replace_the_sweepers):
                row = "own"
            is_exposed = request.is_exposed or (is_swept and request.phase == "open")
            state = _with(state, number, row=row or "swept", note="", is_exposed=is_exposed)
        return state._replace(stream=frozenset())

    def _end_sweep(self, state: State, name: int, sweep: Sweep) -> State:
        """Push a record for each open note, release recorded ones, and remove a worker without notes."""
        for number, note in enumerate(sweep.notes or ()):
            if note == "open" and self.rules.open_notes_become_records:
                state = state._replace(stream=state.stream | {(number, True)})
            if note == "recorded" and (sweep.is_stream_empty or not self.rules.recorded_holds_wait_for_the_stream):
                state = _with(state, number, note="")
        if any(one.note for one in state.requests):
            return _sweep(state, name, Sweep())
        if not self.rules.a_worker_with_notes_is_not_removed:
            return _sweep(state, name, sweep._replace(is_removing=True))
        return _sweep(state._replace(lease="none"), name, Sweep())


class _Record(NamedTuple):
    request: int
    is_swept: bool


def _records(state: State) -> list[_Record]:
    return [_Record(*one) for one in state.stream]


def _is_covered(request: Request) -> bool:
    """Return whether a request's cost is held or charged, or its worker was taken for dead."""
    return request.phase != "recorded" or request.row == "own" or request.note != "" or request.is_exposed


def _overtake(state: State) -> State:
    """Return the state in which what the worker holds may be swept, although it lives."""
    held = [one._replace(is_overtaken=True) if one.phase == "open" else one for one in state.requests]
    return state._replace(requests=tuple(held))


def _record(state: State, number: int) -> State:
    note = state.requests[number].note and "recorded"
    return _with(state, number, phase="recorded", note=note)._replace(stream=state.stream | {(number, False)})


def _with(state: State, number: int, **changes: object) -> State:
    """Return the state with a changed request."""
    requests = list(state.requests)
    requests[number] = requests[number]._replace(**changes)
    return state._replace(requests=tuple(requests))


def _sweep(state: State, name: int, sweep: Sweep) -> State:
    sweeps = list(state.sweeps)
    sweeps[name] = sweep
    return state._replace(sweeps=tuple(sweeps))

"""Leases of batch lines and background responses: one worker answers at a time, another takes over, one charge.

One line and two workers. A worker claims the line under a lease in PostgreSQL, has it answered under the line's log id,
which makes row and charge happen once, and stores the result if it still is the owner. A line that is refused before
admission, or turned away by its provider for its load, is put off. Records are settled at once here (`settlement.py`
has their way), so the model assumes that they arrive within a lease. The code: `apps/batches/line_runs.py`,
`apps/responses/run_leases.py`; docs/adr/0139.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tests.proofs.models.checker import Moves, Predicates

WORKERS = range(2)
# Times that the line is refused, and turned away.
MAX_REFUSED, MAX_TURNED_AWAY = 1, 1


@dataclass(frozen=True)
class Rules:
    """The rules of the protocol. Without any one of them, a promise breaks."""

    a_line_is_claimed_only_when_its_lease_is_over: bool = True
    expired_leases_are_claimed: bool = True
    only_the_owner_stores_a_result: bool = True
    only_the_owner_puts_a_line_off: bool = True
    # Row and charge happen once for an id, so the next owner answers under the id of the one before.
    the_next_owner_keeps_the_id: bool = True
    an_id_is_charged_once: bool = True
    # The worker before may have been charged for it, and have died before it stored the result.
    a_line_refused_to_its_next_owner_keeps_the_id: bool = True
    a_line_turned_away_keeps_an_id_that_was_charged: bool = True
    # Its id has a row at no cost, and would not be charged for the answer that comes later.
    a_line_turned_away_gets_a_new_id: bool = True


class Job(NamedTuple):
    """The line at a worker: its stage, the id that it is answered under, and whether another worker had that id."""

    stage: str = ""  # or "claimed", "answered", "refused", "turned away"
    log_id: int = 0
    is_inherited: bool = False


class State(NamedTuple):
    """The line's row, the rows and charges of its ids, and the workers' jobs."""

    is_open: bool = True
    owner: int | None = None
    is_leased: bool = False
    log_id: int = 0  # 0: drawn at the next claim
    results: int = 0
    # By id, counted from 1: "" (no row), "free" (turned away), "paid".
    rows: tuple[str, ...] = ()
    charges: int = 0
    jobs: tuple[Job, ...] = (Job(), Job())
    refused: int = 0
    turned_away: int = 0
    # A lease was lost: its worker died, ended or stalled. Its answer may then be free: the provider is paid, the
    # organization is not charged.
    has_lost_worker: bool = False


class LineLeases:
    """The model; `rules` may lack one."""

    def __init__(self, rules: Rules = Rules()) -> None:
        self.rules = rules
        self.invariants: Predicates[State] = {
            "a line is charged at most once": lambda state: state.charges <= 1,
            "one result is stored": lambda state: state.results <= 1,
            "two workers answer at once only after a lost lease": lambda state: (
                state.has_lost_worker or sum(bool(job.stage) for job in state.jobs) <= 1
            ),
        }
        self.promises: Predicates[State] = {
            "the line has its result": lambda state: not state.is_open and state.results == 1,
            "the line is charged": lambda state: state.charges == 1 or state.has_lost_worker,
        }

    def initial(self) -> State:
        """Return the state of a line that waits."""
        return State()

    def steps(self, state: State) -> Moves[State]:
        """Yield the steps of both workers, and the end of a lease that no worker renews."""
        for name, job in enumerate(state.jobs):
            if not job.stage:
                if state.is_open and self._is_claimable(state):
                    yield f"worker {name} claims", self._claim(state, name)
                continue
            if not self._is_mine(state, name):
                # It finds out when it renews its lease.
                yield f"worker {name} stops", _job(state, name, Job())
            elif not state.is_leased:
                yield f"worker {name} renews", state._replace(is_leased=True)
            if job.stage == "claimed":
                yield from self._answers(state, name, job)
            elif job.stage == "answered":
                yield f"worker {name} stores result", self._end(state, name)
            else:
                yield f"worker {name} puts off", self._put_off(state, name, job)
        if state.is_leased and state.owner is not None and not state.jobs[state.owner].stage:
            yield "lease ends", state._replace(is_leased=False)

    def _answers(self, state: State, name: int, job: Job) -> Moves[State]:
        """Yield the answer, and the refusals that are left."""
        row = state.rows[job.log_id - 1]
        answered = _job(state, name, job._replace(stage="answered"))
        if not row or not self.rules.an_id_is_charged_once:
            answered = _row(answered, job.log_id, "paid")._replace(charges=state.charges + 1)
        yield f"worker {name} records answer", answered
        if state.refused < MAX_REFUSED:
            refused = _job(state, name, job._replace(stage="refused"))
            yield f"worker {name} is refused", refused._replace(refused=state.refused + 1)
        if state.turned_away < MAX_TURNED_AWAY:
            turned_away = _job(state, name, job._replace(stage="turned away"))
            turned_away = _row(turned_away, job.log_id, row or "free")
            yield f"worker {name} is turned away", turned_away._replace(turned_away=state.turned_away + 1)

    def faults(self, state: State) -> Moves[State]:
        """Yield workers that die, end and hand over, or stall for longer than their lease."""
        for name, job in enumerate(state.jobs):
            if not job.stage:
                continue
            lost = _job(state, name, Job())._replace(has_lost_worker=True)
            yield f"worker {name} dies", lost
            if self._is_mine(state, name):
                yield f"worker {name} hands over", lost._replace(is_leased=False)
                if state.is_leased:
                    yield f"worker {name} stalls", state._replace(is_leased=False, has_lost_worker=True)

    def _is_mine(self, state: State, name: int) -> bool:
        return state.is_open and state.owner == name

    def _is_claimable(self, state: State) -> bool:
        if state.owner is None or not self.rules.a_line_is_claimed_only_when_its_lease_is_over:
            return True
        return not state.is_leased and self.rules.expired_leases_are_claimed

    def _claim(self, state: State, name: int) -> State:
        is_inherited = state.log_id > 0 and self.rules.the_next_owner_keeps_the_id
        if not is_inherited:
            state = state._replace(log_id=len(state.rows) + 1, rows=(*state.rows, ""))
        job = Job("claimed", state.log_id, is_inherited)
        return _job(state, name, job)._replace(owner=name, is_leased=True)

    def _end(self, state: State, name: int) -> State:
        state = _job(state, name, Job())
        if not self._is_mine(state, name) and self.rules.only_the_owner_stores_a_result:
            return state
        return state._replace(is_open=False, owner=None, is_leased=False, results=state.results + 1)

    def _put_off(self, state: State, name: int, job: Job) -> State:
        state = _job(state, name, Job())
        if not self._is_mine(state, name) and self.rules.only_the_owner_puts_a_line_off:
            return state
        if job.stage == "refused":
            keeps = job.is_inherited and self.rules.a_line_refused_to_its_next_owner_keeps_the_id
        else:
            is_charged = state.rows[job.log_id - 1] == "paid"
            keeps = is_charged and self.rules.a_line_turned_away_keeps_an_id_that_was_charged
            keeps = keeps or not self.rules.a_line_turned_away_gets_a_new_id
        return state._replace(owner=None, is_leased=False, log_id=state.log_id if keeps else 0)


def _job(state: State, name: int, job: Job) -> State:
    jobs = list(state.jobs)
    jobs[name] = job
    return state._replace(jobs=tuple(jobs))


def _row(state: State, log_id: int, row: str) -> State:
    rows = list(state.rows)
    rows[log_id - 1] = row
    return state._replace(rows=tuple(rows))

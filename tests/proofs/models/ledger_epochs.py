"""Ledger epochs: copies of a balance move forward by version, until the database is restored to an older state.

One balance in PostgreSQL, its copy in Valkey, publications that arrive in any order, repeated or never, and two
watches that compare both. After a restore, the ledger issues versions a second time: a copy that is ahead begins a new
epoch, which voids the copies of all others. The code: `apps/billing/balances.py`, `apps/billing/balance_copies.py`;
docs/adr/0085.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tests.proofs.models.checker import Moves, Predicates

MAX_MOVEMENTS = 2


@dataclass(frozen=True)
class Rules:
    """The rules of the protocol. Without any one of them, a promise breaks."""

    copies_of_another_epoch_are_void: bool = True
    a_copy_ahead_begins_an_epoch: bool = True
    equal_versions_must_have_equal_amounts: bool = True
    # A database that is restored twice may not know of an epoch whose publications are still on their way.
    epochs_are_numbered_by_a_clock: bool = True
    # Balances move before copies do, so a copy that is read first is never ahead because of timing.
    copies_are_read_before_balances: bool = True
    # Two watches may notice the same restore.
    an_epoch_replaces_the_one_that_was_compared: bool = True
    a_copy_behind_is_moved_forward: bool = True


class Balance(NamedTuple):
    """An amount as of a version of the ledger, in an epoch."""

    amount: int = 0
    version: int = 0
    epoch: int = 0


class Watch(NamedTuple):
    """A comparison in progress: the side that was read first, then the epoch to replace, then a begun epoch."""

    stage: str = ""  # or "read", "alarmed", "begun"
    copy: Balance | None = None
    store_epoch: int = 0
    ledger: Balance = Balance()


class State(NamedTuple):
    """PostgreSQL's balance and its earlier states, Valkey's epoch and copy, and publications on their way."""

    ledger: Balance = Balance()
    earlier: tuple[Balance, ...] = ()
    movements: int = 0
    store_epoch: int = 0
    copy: Balance | None = None
    published: frozenset[Balance] = frozenset()
    watches: tuple[Watch, ...] = (Watch(), Watch())
    restores: int = 0
    epochs: int = 0
    # An epoch has begun since the last restore.
    is_noticed: bool = False


class LedgerEpochs:
    """The model; `rules` may lack one."""

    def __init__(self, rules: Rules = Rules()) -> None:
        self.rules = rules
        self.invariants: Predicates[State] = {
            "only a restore begins an epoch": lambda state: state.epochs == 0 or state.restores > 0,
            "one restore begins one epoch": lambda state: state.epochs <= 1 or state.restores > 1,
            "a new epoch has no copies from before the restore": self._has_no_older_copy,
        }
        self.promises: Predicates[State] = {
            "a copy that is used says what the ledger says": lambda state: (
                not self._is_usable(state) or state.copy == state.ledger
            ),
        }

    def initial(self) -> State:
        """Return the state before the first movement."""
        return State()

    def steps(self, state: State) -> Moves[State]:
        """Yield a movement of the balance, arrivals of publications, and the steps of the watches."""
        if state.movements < MAX_MOVEMENTS:
            # Each amount is new, so that two movements with the same version differ.
            number = state.movements + 1
            ledger = Balance(number, state.ledger.version + 1, state.ledger.epoch)
            yield (
                f"ledger moves {number}",
                _with_ledger(state, ledger)._replace(movements=number, published=state.published | {ledger}),
            )
        for balance in sorted(state.published):
            arrived = self._arrive(state, balance)
            yield f"store takes {tuple(balance)}", arrived._replace(published=state.published - {balance})
        for name, watch in enumerate(state.watches):
            yield from self._watch_steps(state, name, watch)

    def _watch_steps(self, state: State, name: int, watch: Watch) -> Moves[State]:
        is_quiet = state.movements == MAX_MOVEMENTS and not state.published
        if not watch.stage and not (is_quiet and _agree(state)):
            read = Watch("read", ledger=state.ledger)
            if self.rules.copies_are_read_before_balances:
                read = Watch("read", state.copy, state.store_epoch)
            yield f"watch {name} reads one side", _watch(state, name, read)
        if watch.stage == "read":
            if self.rules.copies_are_read_before_balances:
                watch = watch._replace(ledger=state.ledger)
            else:
                watch = watch._replace(copy=state.copy, store_epoch=state.store_epoch)
            yield f"watch {name} compares", self._compare(state, name, watch)
        if watch.stage == "alarmed":
            begun = _watch(state, name, Watch("begun"))
            if state.ledger.epoch == watch.ledger.epoch or not self.rules.an_epoch_replaces_the_one_that_was_compared:
                clock = state.epochs if self.rules.epochs_are_numbered_by_a_clock else 0
                ledger = state.ledger._replace(epoch=max(state.ledger.epoch, state.store_epoch, clock) + 1)
                begun = _with_ledger(begun, ledger)._replace(epochs=state.epochs + 1, is_noticed=True)
            yield f"watch {name} begins an epoch", begun
        if watch.stage == "begun":
            voided = state._replace(store_epoch=max(state.store_epoch, state.ledger.epoch))
            told = _watch(voided, name, Watch())._replace(published=state.published | {state.ledger})
            yield f"watch {name} voids older epochs", told

    def faults(self, state: State) -> Moves[State]:
        """Yield restores, lost and repeated publications, a watch that dies, and a store that forgets."""
        for number, ledger in enumerate(state.earlier):
            earlier = state.earlier[:number]
            restored = state._replace(ledger=ledger, earlier=earlier, restores=state.restores + 1, is_noticed=False)
            yield f"database is restored to {tuple(ledger)}", restored
        for balance in state.published:
            yield f"publication {tuple(balance)} is lost", state._replace(published=state.published - {balance})
            yield f"publication {tuple(balance)} comes twice", self._arrive(state, balance)
        for name, watch in enumerate(state.watches):
            if watch.stage:
                yield f"watch {name} dies", _watch(state, name, Watch())
        if state.copy is not None:
            yield "store forgets", state._replace(copy=None, store_epoch=0)

    def _arrive(self, state: State, balance: Balance) -> State:
        """Publish: within the current epoch versions only move forward, and a later epoch voids all others."""
        if not self.rules.copies_of_another_epoch_are_void:
            is_newer = state.copy is None or state.copy.version < balance.version
            return state._replace(copy=balance, store_epoch=balance.epoch) if is_newer else state
        state = state._replace(store_epoch=max(state.store_epoch, balance.epoch))
        if balance.epoch != state.store_epoch:
            return state
        copy = state.copy
        is_newer = copy is None or (copy.epoch, copy.version) < (balance.epoch, balance.version)
        return state._replace(copy=balance) if is_newer else state

    def _compare(self, state: State, name: int, watch: Watch) -> State:
        """Publish the balance where the copy is behind; raise the alarm where the store is ahead."""
        ledger, copy = watch.ledger, watch.copy
        if watch.store_epoch > ledger.epoch or (copy is not None and self._is_ahead(copy, ledger)):
            if self.rules.a_copy_ahead_begins_an_epoch:
                return _watch(state, name, Watch("alarmed", ledger=ledger))
        elif self.rules.a_copy_behind_is_moved_forward and (copy, watch.store_epoch) != (ledger, ledger.epoch):
            state = state._replace(published=state.published | {ledger})
        return _watch(state, name, Watch())

    def _is_ahead(self, copy: Balance, ledger: Balance) -> bool:
        if copy.epoch != ledger.epoch:
            return copy.epoch > ledger.epoch
        is_other = copy.amount != ledger.amount and self.rules.equal_versions_must_have_equal_amounts
        return copy.version > ledger.version or (copy.version == ledger.version and is_other)

    def _has_no_older_copy(self, state: State) -> bool:
        is_compared = state.is_noticed and self._is_usable(state) and state.store_epoch == state.ledger.epoch
        return not is_compared or state.copy in (*state.earlier, state.ledger)

    def _is_usable(self, state: State) -> bool:
        if state.copy is None or not self.rules.copies_of_another_epoch_are_void:
            return state.copy is not None
        return state.copy.epoch == state.store_epoch


def _agree(state: State) -> bool:
    """Return whether a look would find nothing; a copy that is missing is read at its next use."""
    return state.store_epoch == state.ledger.epoch and state.copy in (None, state.ledger)


def _with_ledger(state: State, ledger: Balance) -> State:
    return state._replace(ledger=ledger, earlier=(*state.earlier, state.ledger))


def _watch(state: State, name: int, watch: Watch) -> State:
    watches = list(state.watches)
    watches[name] = watch
    return state._replace(watches=tuple(watches))

"""Linearizability of a balance: is there one order of concurrent calls in which each answer was right?

Calls are recorded with the moments of their invocation and their return, from as many threads as there are. Each call
must seem to happen at one moment between the two. `find_order` searches for these moments (Wing and Gong's algorithm,
with Lowe's cache of visited sets, as Porcupine does), for each balance by itself.

The balance is the copy in Valkey: an amount as of a version of the ledger, and holds. Its calls are those of
`apps/billing/reservations.py` and `balances.py`: reserve, extend, record (the hold falls to the cost), publish (the
ledger's balance moves the copy forward) and release. An `allowance` is an amount by which reservations may pass the
balance, as while the store does not answer (docs/adr/0084). A call without a return may have happened or not.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

Answer = TypeVar("Answer")
NEVER = float("inf")
# Sets of calls that a search visits, at most: then it gives up.
MAX_VISITED = 1_000_000


@dataclass(frozen=True)
class Reserve:
    """Hold an amount for a request, at least `least`; `granted` is None for a refusal."""

    request: str
    least: int
    granted: int | None

    def apply(self, balance: Balance, allowance: int) -> Balance | None:
        """Return the balance after the call, None where its answer is wrong."""
        if self.granted is None:
            return balance if balance.free < self.least else None
        if self.request in balance.held:
            # Repeated because the answer was lost.
            return balance if dict(balance.holds)[self.request] == self.granted else None
        return balance.hold(self.request, self.granted) if self.granted <= balance.free + allowance else None


@dataclass(frozen=True)
class Extend:
    """Hold more for a request: `outcome` is `held`, `short` or `gone`; `total` is the held amount after `held`."""

    request: str
    least: int
    outcome: str
    total: int = 0

    def apply(self, balance: Balance, allowance: int) -> Balance | None:
        """Return the balance after the call, None where its answer is wrong."""
        known = balance.held.get(self.request)
        if self.outcome == "gone":
            return balance if known is None or self.request in balance.recorded else None
        if known is None or self.request in balance.recorded:
            return None
        if self.outcome == "short":
            return balance if balance.free < self.least else None
        return balance.hold(self.request, self.total) if self.total - known <= balance.free + allowance else None


@dataclass(frozen=True)
class Record:
    """Reduce a request's hold to its cost."""

    request: str
    cost: int

    def apply(self, balance: Balance, allowance: int) -> Balance | None:
        """Return the balance after the call."""
        if self.request not in balance.held:
            return balance
        after = balance.hold(self.request, self.cost)
        return after._replace(recorded=balance.recorded | {self.request})


@dataclass(frozen=True)
class Publish:
    """Move the balance forward to the ledger's amount as of a version."""

    amount: int
    version: int

    def apply(self, balance: Balance, allowance: int) -> Balance | None:
        """Return the balance after the call."""
        return balance._replace(amount=self.amount, version=self.version) if balance.version < self.version else balance


@dataclass(frozen=True)
class Release:
    """Release the hold of a request; `released` tells whether it was still held."""

    request: str
    released: bool

    def apply(self, balance: Balance, allowance: int) -> Balance | None:
        """Return the balance after the call, None where its answer is wrong."""
        if self.released != (self.request in balance.held):
            return None
        return balance.hold(self.request, None)


Operation = Reserve | Extend | Record | Publish | Release


class Balance(NamedTuple):
    """A copy of a balance: its amount and version, its holds, and the requests whose costs are recorded."""

    amount: int
    version: int = 0
    holds: frozenset[tuple[str, int]] = frozenset()
    recorded: frozenset[str] = frozenset()

    @property
    def held(self) -> dict[str, int]:
        """The held amounts by request."""
        return dict(self.holds)

    @property
    def free(self) -> int:
        """The amount that is not held."""
        return self.amount - sum(amount for _, amount in self.holds)

    def hold(self, request: str, amount: int | None) -> Balance:
        """Return the balance with another amount held for a request, none without an amount."""
        others = self.held
        others.pop(request, None)
        if amount is not None:
            others[request] = amount
        return self._replace(holds=frozenset(others.items()))


class Call(NamedTuple):
    """A call on a balance, with the moments of its invocation and its return."""

    balance: str
    operation: Operation
    invoked: float
    returned: float = NEVER


@dataclass
class History:
    """The calls of all threads, as they return."""

    calls: list[Call] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, call: Callable[[], Answer], balance: str, operation_of: Callable[[Answer], Operation]) -> Answer:
        """Make a call and record it; `operation_of` says what its answer claims."""
        invoked = time.monotonic()
        answer = call()
        returned = time.monotonic()
        with self._lock:
            self.calls.append(Call(balance, operation_of(answer), invoked, returned))
        return answer

    def by_balance(self) -> dict[str, list[Call]]:
        """Return the calls of each balance."""
        found = defaultdict[str, list[Call]](list)
        for call in self.calls:
            found[call.balance].append(call)
        return dict(found)


class UndecidedError(Exception):
    """The search visited too many sets of calls."""


def find_order(calls: Iterable[Call], balance: Balance, allowance: int = 0) -> list[Call] | None:
    """Return an order in which every answer was right, None where there is none.

    Calls that never returned are part of it where they are needed. Raises UndecidedError.
    """
    calls = sorted(calls, key=lambda call: call.invoked)
    visited = set[tuple[int, Balance]]()
    # The calls that have happened (as bits), the balance after them, and the next calls to try.
    path = list[Call]()
    stack = [(0, balance, _next_calls(calls, 0))]
    needed = sum(1 << place for place, call in enumerate(calls) if call.returned != NEVER)
    while stack:
        done, now, candidates = stack[-1]
        if done & needed == needed:
            return path
        for place in candidates:
            after = calls[place].operation.apply(now, allowance)
            reached = done | 1 << place
            if after is None or (reached, after) in visited:
                continue
            visited.add((reached, after))
            if len(visited) > MAX_VISITED:
                raise UndecidedError(f"No order among {len(calls)} calls within {MAX_VISITED} sets")
            path.append(calls[place])
            stack.append((reached, after, _next_calls(calls, reached)))
            break
        else:
            stack.pop()
            if path:
                path.pop()
    return None


def _next_calls(calls: Sequence[Call], done: int) -> Iterator[int]:
    """Yield the calls that may come next: those that were invoked before any other open one returned."""
    first_return = NEVER
    for place, call in enumerate(calls):
        if call.invoked > first_return:
            return
        if not done >> place & 1:
            yield place
            first_return = min(first_return, call.returned)

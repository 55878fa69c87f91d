"""Turn queues: greenlets that yield continue in a later turn of the event loop, in rotation by client, for up to 3 ms.

A turn begins when the loop polls for events. `gevent.sleep(0)` does not wait for that: such greenlets alternate among
themselves for fifty steps or more, while a client whose bytes have arrived waits for all of them.

Answers in progress have a queue of their own, behind all else that a turn does: else the first byte of a new answer
would wait, in each of its steps, for the pieces of all others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

import gevent
from gevent.monkey import get_original
from greenlet import getcurrent

from apps.kernel.concurrency.fairness import FairQueue

# Seconds per turn for the greenlets that wait here.
MAX_SECONDS: Final = 0.003
# Seconds per turn for answers in progress; and at most, once one has waited for so many seconds.
MIN_ANSWERS, MAX_ANSWERS, MAX_WAIT = 0.0005, 0.020, 0.050
# libev's lowest priority: behind all else of a turn.
_LAST: Final = -2


class TurnWaiter:
    """A waiting greenlet, since when it waits, and whether it has continued or was interrupted."""

    __slots__ = ("greenlet", "over", "since")

    def __init__(self, since: float = 0.0) -> None:
        self.greenlet: Any = getcurrent()
        self.since = since
        self.over = False


class TurnQueue:
    """Wakes greenlets of its hub. Each continues at most once per turn, however short its steps."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.hub = gevent.get_hub()
        self._clock = clock
        self._queue: FairQueue[TurnWaiter] = FairQueue()
        # A zero timer: libev calls it after the next poll, without waiting.
        self._next_turn = self.hub.loop.timer(0.0)

    def wait_for_turn(self, client: Hashable = None) -> None:
        """Yield, and return in a later turn of the loop, when it is this client's turn."""
        self._wait(client, TurnWaiter())

    def _wait(self, client: Hashable, waiting: TurnWaiter) -> None:
        self.put(client, waiting)
        try:
            self.hub.switch()
        finally:
            waiting.over = True

    def put(self, client: Hashable, waiting: TurnWaiter) -> None:
        """Wake a greenlet in a later turn; it has switched to the hub, or is about to."""
        self._queue.put(client, waiting)
        if len(self._queue) == 1:
            self._next_turn.start(self._wake_some)

    def _end_of_turn(self) -> float:
        """Return until when greenlets may be woken now, on the clock."""
        return self._clock() + MAX_SECONDS

    def _wake_some(self) -> None:
        """Wake those that waited when the turn began, as time allows. Runs in the event loop."""
        until = self._end_of_turn()
        try:
            for _ in range(len(self._queue)):
                waiting = self._queue.take()
                # An interrupted greenlet no longer waits.
                if not waiting.over:
                    waiting.greenlet.switch()
                if self._clock() >= until:
                    break
        finally:
            if self._queue:
                self._next_turn.start(self._wake_some)


class AnswerTurns(TurnQueue):
    """Turns of the answers in progress, for their next pieces.

    In each turn of the loop they have half a millisecond, for which those go on at once whose pieces arrive. So a
    request that begins waits for a few pieces in each of its steps. When a piece has waited for too long, as in a flood
    of requests, they have as long as all else took since their last turn: half of the time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._next_turn = self.hub.loop.timer(0.0, priority=_LAST)
        # The last turn of the loop in which a piece arrived, and until when pieces go on at once in it.
        self._turn, self._at_once_until = 0, 0.0
        # When answers were woken last, or began to wait.
        self._woken_at = 0.0

    def take(self) -> None:
        """Return at once while this turn of the loop has time for answers in progress, else in a later turn."""
        turn, now = self.hub.loop.iteration, self._clock()
        if turn != self._turn:
            self._turn, self._at_once_until = turn, now + MIN_ANSWERS
        if self._queue or now >= self._at_once_until:
            if not self._queue:
                self._woken_at = now
            self._wait(None, TurnWaiter(now))

    def _end_of_turn(self) -> float:
        now = self._clock()
        is_late = now - self._queue.peek().since > MAX_WAIT
        return now + (min(max(now - self._woken_at, MIN_ANSWERS), MAX_ANSWERS) if is_late else MIN_ANSWERS)

    def _wake_some(self) -> None:
        super()._wake_some()
        self._woken_at = self._clock()


Queue = TypeVar("Queue", bound=TurnQueue)


class _QueuesOfThread(get_original("_thread", "_local")):  # type: ignore[misc] # gevent has no types
    """The queues of one thread, by their kind: a worker has one event loop, a waiting thread has its own."""

    def __init__(self) -> None:
        self.by_kind: dict[type[TurnQueue], Any] = {}


_queues = _QueuesOfThread()


def _queue_of_thread(kind: type[Queue]) -> Queue:
    """Return the queue of a kind for this thread's event loop."""
    queue: Queue | None = _queues.by_kind.get(kind)
    if queue is None or queue.hub is not gevent.get_hub():
        queue = _queues.by_kind[kind] = kind()
    return queue


def let_others_go_on(client: Hashable = None) -> None:
    """Let the event loop poll for and serve events before this greenlet continues."""
    _queue_of_thread(TurnQueue).wait_for_turn(client)


def answer_turns() -> AnswerTurns:
    """Return the turns of answers in progress of this thread's event loop."""
    return _queue_of_thread(AnswerTurns)

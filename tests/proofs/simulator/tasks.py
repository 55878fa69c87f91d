"""Tasks: functions of the product on greenlets that pause before each call of a store.

A call is one command or pipeline of Valkey, one statement of PostgreSQL, or one transaction. It happens when the
scheduler resumes the task, unless the scheduler lets it fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any
from unittest.mock import patch

from django.db import OperationalError, connection
from django.db.transaction import Atomic
from greenlet import greenlet
from redis import Redis
from redis.client import Pipeline
from redis.exceptions import ConnectionError as RedisConnectionError

from apps.gateway.settlement import outbox, retransmission


class Failure(StrEnum):
    """How a call fails: it does not arrive, or it is done and its answer is lost."""

    NONE = ""
    REFUSED = "refused"
    LOST = "answer lost"


class Task:
    """A function that runs as far as its next call of a store, each time it is resumed."""

    _running: Task | None = None

    def __init__(self, work: Callable[[], object]) -> None:
        self._greenlet = greenlet(work)
        self._failure = Failure.NONE

    @property
    def has_ended(self) -> bool:
        """Whether the function has returned, or its process has died."""
        return bool(self._greenlet.dead)

    def resume(self, failure: Failure = Failure.NONE) -> None:
        """Let the call happen or fail, and go on to the next one. Raises what the function raises."""
        self._failure = failure
        self._switch(self._greenlet.switch)

    def kill(self) -> None:
        """End the function where it pauses, as the death of its process does."""
        # Clean-up that calls a store pauses again: a dead process calls none.
        while self._greenlet:
            self._switch(self._greenlet.throw)
        self._greenlet = greenlet(lambda: None)
        self._greenlet.switch()

    def _switch(self, switch: Callable[[], object]) -> None:
        Task._running = self
        try:
            switch()
        finally:
            Task._running = None

    def _pause(self) -> Failure:
        parent = self._greenlet.parent
        assert parent is not None
        parent.switch()
        return self._failure

    @classmethod
    def running(cls) -> Task | None:
        """Return the task that runs now, if any."""
        return cls._running

    @classmethod
    def call(cls, call: Callable[[], Any], error: type[Exception]) -> Any:
        """Make a call of a store, after a pause if a task makes it."""
        task = cls._running
        if task is None:
            return call()
        failure = task._pause()
        if failure is Failure.REFUSED:
            raise error("simulated: refused")
        answer = call()
        if failure is Failure.LOST:
            raise error("simulated: the answer was lost")
        return answer


@contextmanager
def pausing() -> Iterator[None]:
    """Let tasks pause before each call of a store, for as long as the block runs."""
    command, execute, enter, leave = Redis.execute_command, Pipeline.execute, Atomic.__enter__, Atomic.__exit__

    def execute_command(client: Any, *args: Any, **options: Any) -> Any:
        return Task.call(lambda: command(client, *args, **options), RedisConnectionError)

    def execute_pipeline(pipeline: Any, *args: Any, **options: Any) -> Any:
        return Task.call(lambda: execute(pipeline, *args, **options), RedisConnectionError)

    def execute_statement(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if connection.in_atomic_block:
            return execute(sql, params, many, context)
        return Task.call(lambda: execute(sql, params, many, context), OperationalError)

    def begin(atomic: Any) -> None:
        if not connection.in_atomic_block and Task._running is not None:
            # An answer that is lost is that to the commit.
            atomic.simulated_failure = Task._running._pause()
            if atomic.simulated_failure is Failure.REFUSED:
                raise OperationalError("simulated: refused")
        enter(atomic)

    def end(atomic: Any, kind: Any, error: Any, traceback: Any) -> None:
        leave(atomic, kind, error, traceback)
        if getattr(atomic, "simulated_failure", Failure.NONE) is Failure.LOST and kind is None:
            raise OperationalError("simulated: the answer was lost")

    with (
        # Records are kept until they are settled, however long a history takes: else its moves would depend on that.
        patch.object(retransmission, "_UNDER_WAY", 86_400.0),
        # Each worker of a world has its own.
        patch.object(outbox, "BUFFER", outbox.BUFFER),
        patch.object(retransmission, "BUFFER", outbox.BUFFER),
        patch.object(Redis, "execute_command", execute_command),
        patch.object(Pipeline, "execute", execute_pipeline),
        patch.object(Atomic, "__enter__", begin),
        patch.object(Atomic, "__exit__", end),
        connection.execute_wrapper(execute_statement),
    ):
        yield

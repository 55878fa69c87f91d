"""Redis multiplexer: two connections shared by all greenlets of a process, with automatic pipelining.

Concurrent commands leave in one packet and are answered in one packet: `execute` waits for the answer, `send_nowait`
until the command has left. A command may be sent twice if the connection is lost in between, so only repeatable
commands may be sent.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, cast

import gevent
import hiredis
from gevent.event import AsyncResult, Event
from gevent.hub import Waiter
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from apps.kernel.concurrency.green_socket import send_all, watch_readable

_READ_SIZE = 65_536
# Bytes from which a command is large: a quarter of what a socket takes at once.
_LARGE = 65_536
_PING = hiredis.pack_command(("PING",))
# Checks for overdue answers per budget.
_LOOKS = 5
# Seconds for which a store that accepted a connection without greeting is avoided; commands then fail at once.
_PAUSE = 1.0
_NOTHING_YET = object()


class RedisMultiplexer:
    """The shared connections, opened on first use and reopened when lost. A command may take `budget` seconds.

    Large commands have a connection of their own: a small one, for which a client waits, would otherwise wait until
    megabytes before it have left. Commands of different sizes may therefore overtake each other.
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        budget: float,
        scripts: Sequence[str] = (),
        *,
        follows_failover: bool = False,
    ) -> None:
        """`scripts` are loaded first on each new connection, so that `send_nowait` may use their digests.

        With `follows_failover`, a new connection may lead to another server: a server that became a replica is left.
        """
        self._follows_failover = follows_failover
        self._small, self._large = (_Lane(connect, budget, scripts) for _ in range(2))

    @classmethod
    def of_pool(
        cls, pool: Any, budget: float, scripts: Sequence[str] = (), *, follows_failover: bool = False
    ) -> RedisMultiplexer:
        """Return a multiplexer that connects like a pool of the library.

        The pool does not count its connections: it would count each attempt, and refuse at its limit.
        """
        return cls(
            lambda: pool.connection_class(**pool.connection_kwargs),
            budget,
            scripts,
            follows_failover=follows_failover,
        )

    def execute(self, *arguments: str | bytes | int) -> Any:
        """Return the store's answer to a command. Raises RedisError if it refuses, is down, or takes too long."""
        command = hiredis.pack_command(arguments)  # type: ignore[arg-type] # its stub knows tuples of one only
        lane = self._lane_of(command)
        try:
            return lane.open().execute(command)
        except RedisConnectionError:
            return lane.open().execute(command)
        except ResponseError as refusal:
            if not self._is_of_a_replica(refusal):
                raise
            self.close()
            return lane.open().execute(command)

    def send_nowait(self, arguments: Sequence[str | bytes | int], failed: Callable[[RedisError], object]) -> None:
        """Send a command after all earlier ones of its kind; return once it has left this process.

        From then on it reaches the store even if this process dies. `failed` is called by the event loop if the store
        refuses it or is lost before the answer, and must not wait. Raises RedisError if it cannot be sent.
        """
        command = hiredis.pack_command(arguments)  # type: ignore[arg-type] # as above
        lane = self._lane_of(command)

        def heard(error: RedisError) -> None:
            if self._is_of_a_replica(error):
                self.close()
            failed(error)

        try:
            lane.open().send_nowait(command, heard)
        except RedisConnectionError:
            lane.open().send_nowait(command, heard)

    @property
    def unanswered(self) -> int:
        """Small commands that the store has not answered yet."""
        return self._small.unanswered

    def flush(self) -> None:
        """Wait until the store has answered every command sent so far. Raises RedisError."""
        for lane in (self._small, self._large):
            lane.flush()

    def close(self) -> None:
        """Close the connections; waiting callers get an error."""
        for lane in (self._small, self._large):
            lane.close()

    def _lane_of(self, command: bytes) -> _Lane:
        return self._small if len(command) < _LARGE else self._large

    def _is_of_a_replica(self, error: RedisError) -> bool:
        """Return whether another server has become the primary."""
        return self._follows_failover and isinstance(error, ResponseError) and str(error).startswith("READONLY")


class _Lane:
    """A connection of the multiplexer and its successors, opened one at a time."""

    def __init__(self, connect: Callable[[], Any], budget: float, scripts: Sequence[str]) -> None:
        self._connect, self._budget, self._scripts = connect, budget, scripts
        self._wire: _SharedConnection | None = None
        # Shared by all who need a connection while one is being opened.
        self._opening: AsyncResult[_SharedConnection] | None = None
        self._paused_until = 0.0

    @property
    def unanswered(self) -> int:
        """Commands without an answer."""
        return 0 if self._wire is None else self._wire.unanswered

    def flush(self) -> None:
        """Wait until the store has answered all commands sent before, if this is open. Raises RedisError."""
        if self._wire is not None and not self._wire.closed:
            self._wire.execute(_PING)

    def close(self) -> None:
        """Close the connection; waiting callers get an error."""
        if self._wire is not None:
            self._wire.close(RedisConnectionError("The connection was closed"))

    def open(self) -> _SharedConnection:
        """Return the connection, opened once for all who need it: they share the outcome, so that a hanging store costs
        them one timeout together and not one each. Raises RedisError."""
        if self._wire is not None and not self._wire.closed:
            return self._wire
        if self._opening is not None:
            return cast(_SharedConnection, self._opening.get())
        if time.monotonic() < self._paused_until:
            raise RedisTimeoutError("The store did not answer a moment ago")
        opening: AsyncResult[_SharedConnection] = AsyncResult()
        self._opening = opening
        try:
            connection = self._connect()
            connection.connect()
            wire = _SharedConnection(connection, self._budget)
            for source in self._scripts:
                # Using a script that could not be loaded gives an error later.
                arguments = ("SCRIPT", "LOAD", source)
                wire.send_nowait(hiredis.pack_command(arguments), lambda _: None)  # type: ignore[arg-type] # as above
            self._wire = wire
        except BaseException as error:
            # The opening greenlet may be killed; the others then try again.
            if isinstance(error, RedisTimeoutError):
                self._paused_until = time.monotonic() + _PAUSE
            failure = error if isinstance(error, Exception) else RedisConnectionError("The connection was given up")
            opening.set_exception(failure)
            raise
        finally:
            self._opening = None
        opening.set(wire)
        return wire


class _FailureListener:
    """Receives the answer of an unawaited command: only a failure is passed on."""

    __slots__ = ("_failed",)

    def __init__(self, failed: Callable[[RedisError], object]) -> None:
        self._failed: Callable[[RedisError], object] | None = failed

    def switch(self, answer: Any) -> None:
        """Receive the store's answer."""
        if isinstance(answer, hiredis.ReplyError):
            self.throw(_refusal(str(answer)))

    def throw(self, error: RedisError) -> None:
        """Receive the error if there will be no answer."""
        if self._failed is not None:
            self._failed(error)

    def forget(self) -> None:
        """Stop passing on failures."""
        self._failed = None


class _SharedConnection:
    """One connection, and the callers that wait for its answers, in order."""

    def __init__(self, connection: Any, budget: float) -> None:
        self.closed = False
        self._budget = budget
        self._connection = connection
        # The library has authenticated; from here on its socket is read and written directly.
        self._sock = connection._sock
        self._sock.settimeout(None)
        self._reader = hiredis.Reader(encoding="utf-8", notEnoughData=_NOTHING_YET)
        self._loop = gevent.get_hub().loop
        # Commands to send, and the receivers of their answers.
        self._outgoing: list[bytes] = []
        self._unsent: list[Waiter[Any] | _FailureListener] = []
        # Receivers of answers to sent commands, with the monotonic time of sending.
        self._waiting: deque[tuple[Waiter[Any] | _FailureListener, float]] = deque()
        # Callers that wait until everything so far has left, and the receivers of the answers.
        self._leaving: deque[tuple[Waiter[None], _FailureListener]] = deque()
        self._something = Event()
        self._greenlets = [gevent.spawn(self._guard, work) for work in (self._write, self._read, self._look)]

    @property
    def unanswered(self) -> int:
        """Commands without an answer."""
        return len(self._waiting) + len(self._unsent)

    def send_nowait(self, command: bytes, failed: Callable[[RedisError], object]) -> None:
        """Send a packed command with other pending ones; return once it has left. Raises RedisError; `failed` is then
        not called."""
        waiter: Waiter[None] = Waiter()
        listener = _FailureListener(failed)
        self._take(command, listener)
        self._leaving.append((waiter, listener))
        self._something.set()
        waiter.get()

    def execute(self, command: bytes) -> Any:
        """Send a packed command with other pending ones; return its answer. Raises RedisError."""
        waiter: Waiter[Any] = Waiter()
        self._take(command, waiter)
        self._something.set()
        answer = waiter.get()
        if isinstance(answer, hiredis.ReplyError):
            raise _refusal(str(answer))
        return answer

    def _take(self, command: bytes, waiting: Waiter[Any] | _FailureListener) -> None:
        if self.closed:
            raise RedisConnectionError("The connection was lost")
        self._unsent.append(waiting)
        self._outgoing.append(command)

    def close(self, error: RedisError) -> None:
        """Close the connection: all waiting callers get this error."""
        if self.closed:
            return
        self.closed = True
        self._connection.disconnect()
        current = gevent.getcurrent()
        gevent.killall([one for one in self._greenlets if one is not current], block=False)
        while self._leaving:
            # Its caller gets the error here.
            waiter, listener = self._leaving.popleft()
            listener.forget()
            self._loop.run_callback(waiter.throw, error)
        for waiting in [*(one for one, _ in self._waiting), *self._unsent]:
            self._loop.run_callback(waiting.throw, error)
        self._waiting.clear()
        self._unsent.clear()

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (OSError, hiredis.HiredisError) as error:
            self.close(RedisConnectionError(f"The connection was lost ({type(error).__name__})"))

    def _write(self) -> None:
        while True:
            self._something.wait()
            self._something.clear()
            while self._outgoing:
                data, leaving = b"".join(self._outgoing), len(self._leaving)
                self._outgoing.clear()
                now = time.monotonic()
                self._waiting.extend(zip(self._unsent, repeat(now), strict=False))
                self._unsent.clear()
                send_all(self._sock, data)
                for _ in range(leaving):
                    self._loop.run_callback(self._leaving.popleft()[0].switch, None)

    def _read(self) -> None:
        hub = gevent.get_hub()
        readable = watch_readable(self._sock)
        while True:
            # Wait first, because a failed read costs more than waiting.
            hub.wait(readable)
            data = self._sock.recv(_READ_SIZE)
            if not data:
                raise ConnectionResetError
            self._reader.feed(data)
            while (answer := self._reader.gets()) is not _NOTHING_YET:
                if not isinstance(answer, hiredis.PushNotification):
                    self._loop.run_callback(self._waiting.popleft()[0].switch, answer)

    def _look(self) -> None:
        """Close the connection if an answer is overdue: a periodic check of the oldest costs less than a timer for
        each."""
        pause = self._budget / _LOOKS
        while True:
            due = time.monotonic() + pause
            gevent.sleep(pause)
            now = time.monotonic()
            if now > due + pause:
                # This process was busy: the answers may have arrived unread.
                continue
            if self._waiting and self._waiting[0][1] < now - self._budget:
                waiter, _ = self._waiting.popleft()
                self._loop.run_callback(waiter.throw, RedisTimeoutError("The store did not answer in time"))
                # A late answer would be taken for the next command's.
                self.close(RedisConnectionError("The connection was given up"))


def _refusal(message: str) -> RedisError:
    return NoScriptError(message) if message.startswith("NOSCRIPT") else ResponseError(message)

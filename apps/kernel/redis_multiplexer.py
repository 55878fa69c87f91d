"""Redis multiplexer: one connection that all greenlets of a process share, with automatic pipelining.

Commands that greenlets send at about the same time leave in one piece and are answered in one piece: whoever needs the
answer waits for it (`execute`), others until their command has left (`send_nowait`). Knows bytes on their way and who
waits for which answer. Must never know what is asked. A command may be sent twice when the connection is lost in
between, so only commands that may be repeated belong here.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

import gevent
import hiredis
from gevent.event import AsyncResult, Event
from gevent.hub import Waiter
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from apps.kernel.green_socket import send_all, watch_readable

_READ_SIZE = 65_536
# How often within the budget it is looked whether somebody has waited for longer.
_LOOKS = 5
# Seconds for which a store that took a connection and did not greet is left alone; meanwhile commands fail at once.
_PAUSE = 1.0
_NOTHING_YET = object()


class RedisMultiplexer:
    """The shared connection, opened on first use and anew after it was lost. A command may take `budget` seconds."""

    def __init__(
        self,
        connect: Callable[[], Any],
        budget: float,
        scripts: Sequence[str] = (),
        *,
        follows_failover: bool = False,
    ) -> None:
        """`scripts` are loaded on each new connection before anything else: `send_nowait` may name them by digest.

        With `follows_failover` a new connection may lead to another server: one that has become a replica is left.
        """
        self._connect = connect
        self._follows_failover = follows_failover
        self._budget = budget
        self._scripts = scripts
        self._wire: _SharedConnection | None = None
        # What those wait for who need a connection while one is being opened.
        self._opening: AsyncResult[_SharedConnection] | None = None
        self._paused_until = 0.0

    @classmethod
    def of_pool(
        cls, pool: Any, budget: float, scripts: Sequence[str] = (), *, follows_failover: bool = False
    ) -> RedisMultiplexer:
        """Return one that connects as a pool of the library does.

        The pool does not count its connections: it would count each that was tried, and refuse after as many as it may
        have.
        """
        return cls(
            lambda: pool.connection_class(**pool.connection_kwargs),
            budget,
            scripts,
            follows_failover=follows_failover,
        )

    def execute(self, *arguments: str | bytes | int) -> Any:
        """Return the store's answer to a command. Raises RedisError when it refuses, is away, or takes too long."""
        command = hiredis.pack_command(arguments)  # type: ignore[arg-type] # its stub knows tuples of one only
        try:
            return self._open_wire().execute(command)
        except RedisConnectionError:
            return self._open_wire().execute(command)
        except ResponseError as refusal:
            if not self._is_of_a_replica(refusal):
                raise
            self.close()
            return self._open_wire().execute(command)

    def send_nowait(self, arguments: Sequence[str | bytes | int], failed: Callable[[RedisError], object]) -> None:
        """Send a command, behind all that was asked before; return once it has left this process.

        From then on it reaches the store though this process may die. `failed` is called by the event loop, and must
        not wait, when the store refuses it or is lost before it answered. Raises RedisError when it cannot be sent.
        """
        command = hiredis.pack_command(arguments)  # type: ignore[arg-type] # as above

        def heard(error: RedisError) -> None:
            if self._is_of_a_replica(error):
                self.close()
            failed(error)

        try:
            self._open_wire().send_nowait(command, heard)
        except RedisConnectionError:
            self._open_wire().send_nowait(command, heard)

    def close(self) -> None:
        """Let go of the connection; who waits for an answer gets an error."""
        if self._wire is not None:
            self._wire.close(RedisConnectionError("The connection was closed"))

    def _is_of_a_replica(self, error: RedisError) -> bool:
        """Tell whether another server has become the primary."""
        return self._follows_failover and isinstance(error, ResponseError) and str(error).startswith("READONLY")

    def _open_wire(self) -> _SharedConnection:
        """Return the connection. One that must be opened is opened once for all who ask: they share what comes of it,
        so that a store that hangs costs each of them one patience, and not one after the other."""
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
                # Who names one that could not be loaded gets an error.
                arguments = ("SCRIPT", "LOAD", source)
                wire.send_nowait(hiredis.pack_command(arguments), lambda _: None)  # type: ignore[arg-type] # as above
            self._wire = wire
        except BaseException as error:
            # Whoever opens may leave on the way; the others then ask once more.
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
    """Takes the answer of a command that nobody waits for: only a failure is passed on."""

    __slots__ = ("_failed",)

    def __init__(self, failed: Callable[[RedisError], object]) -> None:
        self._failed: Callable[[RedisError], object] | None = failed

    def switch(self, answer: Any) -> None:
        """Take the store's answer."""
        if isinstance(answer, hiredis.ReplyError):
            self.throw(_refusal(str(answer)))

    def throw(self, error: RedisError) -> None:
        """Take the news that there will be no answer."""
        if self._failed is not None:
            self._failed(error)

    def forget(self) -> None:
        """Call nobody any more."""
        self._failed = None


class _SharedConnection:
    """One connection and those who wait for its answers, in the order in which they asked."""

    def __init__(self, connection: Any, budget: float) -> None:
        self.closed = False
        self._budget = budget
        self._connection = connection
        # The library has greeted the store; from here on its socket is read and written here.
        self._sock = connection._sock
        self._sock.settimeout(None)
        self._reader = hiredis.Reader(encoding="utf-8", notEnoughData=_NOTHING_YET)
        self._loop = gevent.get_hub().loop
        # Commands that are to leave, and who waits for their answers.
        self._outgoing: list[bytes] = []
        self._unsent: list[Waiter[Any] | _FailureListener] = []
        # Who waits for the answer to what has left, and when that was on the monotonic clock.
        self._waiting: deque[tuple[Waiter[Any] | _FailureListener, float]] = deque()
        # Who waits until what has been taken so far has left, and whom the store's answer to that would go to.
        self._leaving: deque[tuple[Waiter[None], _FailureListener]] = deque()
        self._something = Event()
        self._greenlets = [gevent.spawn(self._guard, work) for work in (self._write, self._read, self._look)]

    def send_nowait(self, command: bytes, failed: Callable[[RedisError], object]) -> None:
        """Send a packed command with whatever else is about to leave; return once it has. Raises RedisError; then
        `failed` is not called."""
        waiter: Waiter[None] = Waiter()
        listener = _FailureListener(failed)
        self._take(command, listener)
        self._leaving.append((waiter, listener))
        self._something.set()
        waiter.get()

    def execute(self, command: bytes) -> Any:
        """Send a packed command with whatever else is about to leave; return its answer. Raises RedisError."""
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
        """Give up the connection: everybody who waits gets this error."""
        if self.closed:
            return
        self.closed = True
        self._connection.disconnect()
        current = gevent.getcurrent()
        gevent.killall([one for one in self._greenlets if one is not current], block=False)
        while self._leaving:
            # It hears of that here.
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
                self._waiting.extend((one, now) for one in self._unsent)
                self._unsent.clear()
                send_all(self._sock, data)
                for _ in range(leaving):
                    self._loop.run_callback(self._leaving.popleft()[0].switch, None)

    def _read(self) -> None:
        hub = gevent.get_hub()
        readable = watch_readable(self._sock)
        while True:
            # First, for to try in vain costs more than to wait.
            hub.wait(readable)
            data = self._sock.recv(_READ_SIZE)
            if not data:
                raise ConnectionResetError
            self._reader.feed(data)
            while (answer := self._reader.gets()) is not _NOTHING_YET:
                if not isinstance(answer, hiredis.PushNotification):
                    self._loop.run_callback(self._waiting.popleft()[0].switch, answer)

    def _look(self) -> None:
        """End it for whoever has waited too long: one look at the oldest now and then costs less than a timer each."""
        pause = self._budget / _LOOKS
        while True:
            due = time.monotonic() + pause
            gevent.sleep(pause)
            now = time.monotonic()
            if now > due + pause:
                # This process was busy for so long: the answers may be here and not have been read.
                continue
            if self._waiting and self._waiting[0][1] < now - self._budget:
                waiter, _ = self._waiting.popleft()
                self._loop.run_callback(waiter.throw, RedisTimeoutError("The store did not answer in time"))
                # The answer may still come, and would be taken for the next one's.
                self.close(RedisConnectionError("The connection was given up"))


def _refusal(message: str) -> RedisError:
    return NoScriptError(message) if message.startswith("NOSCRIPT") else ResponseError(message)

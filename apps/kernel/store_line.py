"""One connection to the store that all greenlets of a process share: what they ask at about the same time leaves in one
piece and is answered in one piece.

Knows bytes on their way and who waits for which answer. Must never know what is asked. A command may be sent twice when
the connection is lost in between, so only such as may be repeated belong here.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import gevent
import hiredis
from gevent.event import AsyncResult, Event
from gevent.hub import Waiter
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

_READ_SIZE = 65_536
_READ = 1  # libev's word.
# How often within the budget it is looked whether somebody has waited for longer.
_LOOKS = 5
# Seconds for which a store that took a connection and did not greet is left alone; who asks meanwhile is told at once.
_PAUSE = 1.0
_NOTHING_YET = object()


class StoreLine:
    """The shared connection, opened on first use and anew after it was lost. A command may take `budget` seconds."""

    def __init__(self, connect: Callable[[], Any], budget: float) -> None:
        self._connect = connect
        self._budget = budget
        self._wire: _Wire | None = None
        # What those wait for who need a connection while one is being opened.
        self._opening: AsyncResult[_Wire] | None = None
        self._paused_until = 0.0

    def ask(self, *words: str | bytes | int) -> Any:
        """Return the store's answer to a command. Raises RedisError when it refuses, is away, or takes too long."""
        command = hiredis.pack_command(words)  # type: ignore[arg-type] # its stub knows tuples of one only
        try:
            return self._open_wire().ask(command)
        except RedisConnectionError:
            return self._open_wire().ask(command)

    def close(self) -> None:
        """Let go of the connection; who waits for an answer gets an error."""
        if self._wire is not None:
            self._wire.close(RedisConnectionError("The connection was closed"))

    def _open_wire(self) -> _Wire:
        """Return the connection. One that must be opened is opened once for all who ask: they share what comes of it,
        so that a store that hangs costs each of them one patience, and not one after the other."""
        if self._wire is not None and not self._wire.closed:
            return self._wire
        if self._opening is not None:
            return cast(_Wire, self._opening.get())
        if time.monotonic() < self._paused_until:
            raise RedisTimeoutError("The store did not answer a moment ago")
        opening: AsyncResult[_Wire] = AsyncResult()
        self._opening = opening
        try:
            connection = self._connect()
            connection.connect()
            wire = self._wire = _Wire(connection, self._budget)
        except BaseException as error:
            # Whoever opens may leave on the way; the others then ask once more.
            if isinstance(error, RedisTimeoutError):
                self._paused_until = time.monotonic() + _PAUSE
            told = error if isinstance(error, Exception) else RedisConnectionError("The connection was given up")
            opening.set_exception(told)
            raise
        finally:
            self._opening = None
        opening.set(wire)
        return wire


class _Wire:
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
        # Who waits, and since when on the monotonic clock.
        self._waiting: deque[tuple[Waiter[Any], float]] = deque()
        self._outgoing: list[bytes] = []
        self._something = Event()
        self._greenlets = [gevent.spawn(self._guard, work) for work in (self._write, self._read, self._look)]

    def ask(self, command: bytes) -> Any:
        """Send a packed command with whatever else is about to leave; return its answer. Raises RedisError."""
        if self.closed:
            raise RedisConnectionError("The connection was lost")
        waiter: Waiter[Any] = Waiter()
        self._waiting.append((waiter, time.monotonic()))
        self._outgoing.append(command)
        self._something.set()
        answer = waiter.get()
        if isinstance(answer, hiredis.ReplyError):
            raise _refusal(str(answer))
        return answer

    def close(self, error: RedisError) -> None:
        """Give up the connection: everybody who waits is told why."""
        if self.closed:
            return
        self.closed = True
        self._connection.disconnect()
        current = gevent.getcurrent()
        gevent.killall([one for one in self._greenlets if one is not current], block=False)
        while self._waiting:
            self._loop.run_callback(self._waiting.popleft()[0].throw, error)

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (OSError, hiredis.HiredisError) as error:
            self.close(RedisConnectionError(f"The connection was lost ({type(error).__name__})"))

    def _write(self) -> None:
        while True:
            self._something.wait()
            self._something.clear()
            data = b"".join(self._outgoing)
            self._outgoing.clear()
            # Nearly always all of it goes at once, and `sendall` asks for the buffer's size first.
            sent = self._sock.send(data)
            if sent < len(data):
                self._sock.sendall(data[sent:])

    def _read(self) -> None:
        hub = gevent.get_hub()
        readable = hub.loop.io(self._sock.fileno(), _READ)
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
        while True:
            gevent.sleep(self._budget / _LOOKS)
            if self._waiting and self._waiting[0][1] < time.monotonic() - self._budget:
                waiter, _ = self._waiting.popleft()
                self._loop.run_callback(waiter.throw, RedisTimeoutError("The store did not answer in time"))
                # The answer may still come, and would be taken for the next one's.
                self.close(RedisConnectionError("The connection was given up"))


def _refusal(words: str) -> RedisError:
    return NoScriptError(words) if words.startswith("NOSCRIPT") else ResponseError(words)

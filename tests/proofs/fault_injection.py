"""Fault injection at the clients of Valkey, PostgreSQL and providers, and at the spool's calls to the disk.

One call of a piece of work fails, by its number.

The product's own clients are used: a call that fails after it took effect was really made. Only calls of the work in
the block are counted, and of what it starts; heartbeats and other background work are left alone.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import gevent
import psycopg
import pytest
from redis import Redis
from redis.client import Pipeline
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from apps.gateway.failures import UpstreamFailure
from apps.gateway.settlement import outbox, spool
from apps.gateway.upstream import connection_pool
from apps.gateway.upstream.http_response import UpstreamResponse
from apps.kernel.postgres.database import TimeoutConnection
from apps.kernel.valkey import redis, redis_multiplexer

# Repetitions of a refused call that are refused too: those of a record, before it goes to the spool.
REPETITIONS: Final = 3


class Target(StrEnum):
    """Where calls are counted."""

    VALKEY = "valkey"
    POSTGRES = "postgres"
    UPSTREAM = "upstream"
    DISK = "disk"


class Fault(StrEnum):
    """How a call fails: it is not made, now or when it is repeated; its caller waits too long, before or after it took
    effect; or the connection ends before its answer."""

    REFUSED = "refused"
    TIMEOUT_BEFORE = "timeout before"
    TIMEOUT_AFTER = "timeout after"
    ANSWER_LOST = "answer lost"

    @property
    def takes_effect(self) -> bool:
        """Whether the call is made all the same."""
        return self in {Fault.TIMEOUT_AFTER, Fault.ANSWER_LOST}

    @property
    def is_timeout(self) -> bool:
        """Whether the caller gives up, as opposed to losing its connection."""
        return self in {Fault.TIMEOUT_BEFORE, Fault.TIMEOUT_AFTER}


@dataclass
class Injection:
    """Counts the calls to a target; that with the number `at`, from 1, fails, or `beside` runs just before it."""

    target: Target
    at: int = 0
    fault: Fault | None = None
    # An act of an operator.
    beside: Callable[[], object] | None = None
    # Whether the store takes no record meanwhile: they go to the disk.
    is_store_deaf: bool = False
    # Names of the calls, in order.
    calls: list[str] = field(default_factory=list)
    # A refused call, and how often it is refused again; and whether this is at work of its own.
    _refused: object = None
    _repetitions: int = REPETITIONS
    _busy: bool = False

    @property
    def has_struck(self) -> bool:
        """Whether there was such a call."""
        return 0 < self.at <= len(self.calls)

    def is_counted(self, target: Target) -> bool:
        """Whether a call to a target is one of the work's."""
        return target is self.target and not self._busy

    def fault_of(self, name: str, command: object) -> Fault | None:
        """Count a call; return how it is to fail."""
        if self._repetitions and self._refused is not None and command == self._refused:
            self._repetitions -= 1
            return Fault.REFUSED
        self.calls.append(name)
        if len(self.calls) != self.at:
            return None
        if self.fault is Fault.REFUSED:
            self._refused = command
        if self.beside is not None:
            self._busy = True
            try:
                self.beside()
            finally:
                self._busy = False
        return self.fault


_current: ContextVar[Injection | None] = ContextVar("injection", default=None)


@contextmanager
def inject(injection: Injection) -> Iterator[Injection]:
    """Let calls fail in the block, and in greenlets that it starts."""
    token = _current.set(injection)
    try:
        yield injection
    finally:
        _current.reset(token)
        # For greenlets of the block that go on, too.
        injection.is_store_deaf = False


def _fault_of(target: Target, name: str, command: object = None) -> Fault | None:
    injection = _current.get()
    if injection is None or not injection.is_counted(target):
        return None
    return injection.fault_of(name, command)


@pytest.fixture
def injectable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every call to a store, a provider or the disk looked at, and scripts sent by the multiplexer, as in a web
    worker."""
    monkeypatch.setattr(redis, "is_module_patched", lambda _: True)
    monkeypatch.setattr(gevent, "spawn", _spawned(gevent.spawn))
    wire = redis_multiplexer._SharedConnection
    monkeypatch.setattr(wire, "execute", _multiplexed(wire.execute))
    monkeypatch.setattr(wire, "send_nowait", _sent(wire.send_nowait, wire.execute))
    monkeypatch.setattr(Redis, "_send_command_parse_response", _plain(Redis._send_command_parse_response))
    for method in ("_execute_transaction", "_execute_pipeline"):
        monkeypatch.setattr(Pipeline, method, _plain(getattr(Pipeline, method)))
    monkeypatch.setattr(TimeoutConnection, "wait", _waited(TimeoutConnection.wait))
    monkeypatch.setattr(connection_pool, "connect", _connected(connection_pool.connect))
    monkeypatch.setattr(connection_pool, "send_all", _written(connection_pool.send_all))
    monkeypatch.setattr(UpstreamResponse, "_receive_until", _received(UpstreamResponse._receive_until))
    monkeypatch.setattr(spool, "os", _Disk())
    monkeypatch.setattr(outbox, "_PUSH", _DeafStore(outbox._PUSH))


def _spawned(spawn: Any) -> Any:
    """Return a spawn whose greenlets belong to the work that starts them: gevent's own have no context."""

    def call(*arguments: Any, **options: Any) -> Any:
        if _current.get() is None:
            return spawn(*arguments, **options)
        return spawn(copy_context().run, *arguments, **options)

    return call


# --- Valkey


def _redis_error(fault: Fault) -> RedisError:
    return RedisTimeoutError("injected") if fault.is_timeout else RedisConnectionError("injected")


def _name_of(command: bytes) -> str:
    """Return the words of a packed command that tell it from others."""
    parts = command.split(b"\r\n")[2:9:2]
    return b" ".join(parts[:1] + parts[1:2]).decode("ascii", "replace")[:24]


def _multiplexed(execute: Any) -> Any:
    def call(self: Any, command: bytes) -> Any:
        fault = _fault_of(Target.VALKEY, _name_of(command), command)
        if fault is None:
            return execute(self, command)
        if fault.takes_effect:
            execute(self, command)
        self.close(RedisConnectionError("injected"))
        raise _redis_error(fault)

    return call


def _sent(send_nowait: Any, execute: Any) -> Any:
    def call(self: Any, command: bytes, failed: Callable[[RedisError], object]) -> None:
        is_own = b"$6\r\nSCRIPT\r\n" in command[:32]
        fault = None if is_own else _fault_of(Target.VALKEY, f"{_name_of(command)} (sent)", command)
        if fault is None:
            send_nowait(self, command, failed)
            return
        if fault is Fault.REFUSED:
            self.close(RedisConnectionError("injected"))
            raise RedisConnectionError("injected")
        if fault.takes_effect:
            execute(self, command)
        # It has left, as far as its caller knows. The failure comes later.
        gevent.get_hub().loop.run_callback(failed, _redis_error(fault))

    return call


def _plain(send: Any) -> Any:
    def call(self: Any, connection: Any, *arguments: Any, **options: Any) -> Any:
        command = arguments[0]
        name = command if isinstance(command, str) else " ".join(str(one[0][0]) for one in command)
        fault = _fault_of(Target.VALKEY, name, repr(arguments))
        if fault is None:
            return send(self, connection, *arguments, **options)
        if fault.takes_effect:
            send(self, connection, *arguments, **options)
        connection.disconnect()
        raise _redis_error(fault)

    return call


# --- PostgreSQL


def _waited(wait: Any) -> Any:
    def call(self: Any, generator: Any, *arguments: Any, **options: Any) -> Any:
        name = getattr(generator, "__name__", "wait").strip("_")
        fault = _fault_of(Target.POSTGRES, name)
        if fault is None:
            return wait(self, generator, *arguments, **options)
        if fault.takes_effect:
            wait(self, generator, *arguments, **options)
        else:
            generator.close()
        self.pgconn.finish()
        raise psycopg.OperationalError("injected: " + ("no answer in time" if fault.is_timeout else "connection lost"))

    return call


# --- providers


def _connected(connect: Any) -> Any:
    def call(*arguments: Any, **options: Any) -> Any:
        fault = _fault_of(Target.UPSTREAM, "connect")
        if fault is None:
            return connect(*arguments, **options)
        if fault.takes_effect:
            connect(*arguments, **options).close()
        raise TimeoutError("injected") if fault.is_timeout else ConnectionRefusedError("injected")

    return call


def _written(send_all: Any) -> Any:
    def call(sock: Any, data: bytes, *arguments: Any) -> None:
        fault = _fault_of(Target.UPSTREAM, "write")
        if fault is None:
            send_all(sock, data, *arguments)
            return
        if fault.takes_effect:
            send_all(sock, data, *arguments)
        raise TimeoutError("injected") if fault.is_timeout else BrokenPipeError("injected")

    return call


def _received(receive: Any) -> Any:
    def call(self: Any, *arguments: Any) -> bool:
        fault = _fault_of(Target.UPSTREAM, "read")
        if fault is None:
            return bool(receive(self, *arguments))
        if fault.takes_effect:
            receive(self, *arguments)
        raise UpstreamFailure("timeout" if fault.is_timeout else "network", "injected")

    return call


# --- the spool's disk

_DISK_CALLS: Final = ("open", "pwrite", "pread", "fsync", "rename", "ftruncate", "posix_fallocate")


class _Disk:
    """The module `os` for the spool, whose calls to the disk are counted."""

    def __getattr__(self, name: str) -> Any:
        call = getattr(os, name)
        return _on_disk(name, call) if name in _DISK_CALLS else call


def _on_disk(name: str, function: Any) -> Any:
    def call(*arguments: Any) -> Any:
        fault = _fault_of(Target.DISK, name)
        if fault is None:
            return function(*arguments)
        if fault.takes_effect:
            function(*arguments)
        code = errno.EIO if fault.takes_effect else errno.ENOSPC
        raise OSError(code, os.strerror(code))

    return call


class _DeafStore:
    """The script that pushes a record; the store refuses it where an injection says so."""

    def __init__(self, script: Any) -> None:
        self._script = script

    def __getattr__(self, name: str) -> Any:
        injection = _current.get()
        if injection is not None and injection.is_store_deaf:
            raise RedisConnectionError("injected: takes no record")
        return getattr(self._script, name)

"""Mutants: the product's functions with one rule taken away, which the simulator has to notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

from apps.billing import reservations, worker_leases
from apps.gateway.settlement import outbox, retransmission, settle, spool
from apps.gateway.settlement.outbox import OutboxMessage
from apps.kernel.valkey.redis import LuaScript


def _without(script: LuaScript, text: str, instead: str = "") -> LuaScript:
    """Return a script that lacks a piece of its text."""
    source = script._source
    assert text in source
    return LuaScript(source.replace(text, instead))


@contextmanager
def acknowledged_first() -> Iterator[None]:
    """Acknowledge records before they are settled: a settler that dies in between takes them along."""
    settle_all, acknowledge = settle.settle, outbox.acknowledge

    def settle_late(messages: Sequence[OutboxMessage]) -> int:
        acknowledge(messages)
        return settle_all(messages)

    with patch.object(settle, "settle", settle_late), patch.object(outbox, "acknowledge", lambda _: None):
        yield


@contextmanager
def acknowledged_by_id() -> Iterator[None]:
    """Remove whatever record has a message's id: the store may have given it to another since it lost its data."""
    script = _without(outbox._ACKNOWLEDGE, "string.sub(found[2][4], 1, #ARGV[i + 1]) == ARGV[i + 1]", "true")
    with patch.object(outbox, "_ACKNOWLEDGE", script):
        yield


@contextmanager
def held_twice() -> Iterator[None]:
    """Reserve again when a reservation is repeated because its answer was lost."""
    script = _without(reservations._RESERVE, "if before then", "if false then")
    with patch.object(reservations, "_RESERVE", script):
        yield


@contextmanager
def never_spooled() -> Iterator[None]:
    """Drop the records that the store refuses."""
    with patch.object(spool, "add", lambda worker, record: None):
        yield


@contextmanager
def never_pushed_again() -> Iterator[None]:
    """Let workers ignore that the store has lost its data."""
    with patch.object(retransmission.Retransmission, "_push_again", lambda _: 0):
        yield


@contextmanager
def released_before_the_charge() -> Iterator[None]:
    """Hold nothing for a recorded request, although its cost is charged later."""
    script = _without(outbox._PUSH, "stays - held", "- held")
    final = "redis.call('HSET', KEYS[2], ARGV[3], write_note(ARGV[5], '0', counts, ARGV[4]))"
    script = _without(script, final, "redis.call('HDEL', KEYS[2], ARGV[3])")
    with patch.object(outbox, "_PUSH", script):
        yield


@contextmanager
def never_renewed_by_a_reservation() -> Iterator[None]:
    """Leave the lease of a worker that stalled as it is when it reserves: what it holds then is swept."""
    script = _without(reservations._RESERVE, "not beat or", "not beat or false and")
    with patch.object(reservations, "_RESERVE", script):
        yield


@contextmanager
def never_looked_at_again() -> Iterator[None]:
    """Sweep the notes of a worker whatever has become of its lease since it was found."""
    with patch.object(worker_leases, "is_expired", lambda *_: True):
        yield


@contextmanager
def never_swept() -> Iterator[None]:
    """Leave the holds of dead workers."""
    with patch.object(settle, "sweep", lambda: 0):
        yield


MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "acknowledged by id": acknowledged_by_id,
    "acknowledged first": acknowledged_first,
    "held twice": held_twice,
    "never looked at again": never_looked_at_again,
    "never spooled": never_spooled,
    "never pushed again": never_pushed_again,
    "never renewed by a reservation": never_renewed_by_a_reservation,
    "never swept": never_swept,
    "released before the charge": released_before_the_charge,
}

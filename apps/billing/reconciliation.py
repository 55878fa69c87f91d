"""Do the stores agree about money? Every balance with its ledger entries, its copy in Redis, and what is held on it.

Safe to ask under load: what moves while it is asked about is no difference. Knows balances, notes and holds. Must never
know what a request is, nor read the log.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import islice
from typing import Literal
from uuid import UUID

import msgspec

from apps.billing import audit, balances, ledger
from apps.billing.balances import Balance, Scope
from apps.billing.holds import Note
from apps.billing.leases import WORKERS, notes_key
from apps.kernel.ids import find_id, time_of
from apps.kernel.money import NANO, plain
from apps.kernel.redis import LuaScript, client

# Balances that are asked for in one go.
_BATCH = 1_000
# Seconds after which a copy that still is behind was not published: settling takes milliseconds.
PATIENCE = 3.0

_HELD = LuaScript(
    """
    -- KEYS: the workers, then balances; ARGV: the prefix of a worker's notes. Returns, for each balance, what is held
    -- on it and what open notes hold there.
    local promised = {}
    for _, worker in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
      for _, text in ipairs(redis.call('HVALS', ARGV[1] .. worker)) do
        local note = cjson.decode(text)
        for _, name in ipairs(note.holds) do promised[name] = (promised[name] or 0) + tonumber(note.amount) end
      end
    end
    local answer = {}
    for i = 2, #KEYS do
      answer[i - 1] = {redis.call('HGET', KEYS[i], 'held') or '0', string.format('%.0f', promised[KEYS[i]] or 0)}
    end
    return answer
    """
)

Kind = Literal["credits", "usage", "open", "held", "copy"]


@dataclass(frozen=True, slots=True)
class Difference:
    """Two amounts that should be one, of an organization or a key; `open` is about a request."""

    kind: Kind
    subject: UUID
    organization: UUID | None
    expected: str
    found: str


def sums() -> Iterator[Difference]:
    """Yield every balance that the ledger contradicts. Raises DatabaseError."""
    for one in audit.differences():
        kind: Kind = "credits" if one.scope == "organization" else "usage"
        organization = one.id if one.scope == "organization" else None
        yield Difference(kind, one.id, organization, plain(one.entries), plain(one.balance))


def left_open(before: datetime) -> Iterator[Difference]:
    """Yield the requests let in before a moment whose notes are still there: nobody has recorded them.

    A note goes when its request's row is in the log, so these are all there are. Raises RedisError.
    """
    for name in client().scan_iter(match=notes_key("*"), count=_BATCH):
        for identifier, text in client().hscan_iter(name, count=_BATCH):
            request = UUID(str(identifier))
            if time_of(request) < before:
                note = msgspec.json.decode(text, type=Note)
                held = plain(Decimal(note.amount) / NANO)
                yield Difference("open", request, _organization_of(note), "0", held)


def held() -> Iterator[Difference]:
    """Yield the balances on which something else is held than open requests hold. Raises RedisError.

    Suspects are found by reading around, and asked about in one step, so that nothing moves in between.
    """
    promised: defaultdict[str, int] = defaultdict(int)
    for name in client().scan_iter(match=notes_key("*"), count=_BATCH):
        for _, text in client().hscan_iter(name, count=_BATCH):
            note = msgspec.json.decode(text, type=Note)
            for balance in note.holds:
                promised[balance] += int(note.amount)
    suspects = []
    for names in _copies():
        amounts = _ask(names, "held")
        suspects += [name for name, (amount,) in zip(names, amounts, strict=True) if int(amount or 0) != promised[name]]
    for some in _batches(suspects):
        answers = _HELD([WORKERS, *some], [notes_key("")])
        for name, (found, expected) in zip(some, answers, strict=True):
            scope, identifier = _named(name)
            if int(found) != int(expected) and identifier is not None:
                organization = identifier if scope == "organization" else None
                yield Difference("held", identifier, organization, _usd(expected), _usd(found))


def copies() -> Iterator[Difference]:
    """Yield the copies of balances that are not the balance, after a while in which they might have become it.

    Those that are only behind are moved forward as well. Raises RedisError and DatabaseError.
    """
    suspects = {(true.scope, true.id, version) for names in _copies() for true, _, version in _strayed(names)}
    if not suspects:
        return
    time.sleep(PATIENCE)
    for names in _batches(balances.key(scope, identifier) for scope, identifier, _ in suspects):
        again = _strayed(names)
        # One whose version has moved on is being settled this moment.
        for true, amount, version in again:
            if (true.scope, true.id, version) in suspects:
                organization = true.id if true.scope == "organization" else None
                yield Difference("copy", true.id, organization, _usd(true.nanos), _usd(amount))
        balances.put([true for true, _, _ in again])


def _strayed(names: Sequence[str]) -> list[tuple[Balance, int, int]]:
    """Return balances whose copies are not they, each with its copy's amount and version.

    Copies are read first: a balance is published after it has moved, so that none can be ahead.
    """
    known: dict[tuple[Scope, UUID], tuple[int, int]] = {}
    for name, (stated, counted) in zip(names, _ask(names, "amount", "version"), strict=True):
        scope, identifier = _named(name)
        if identifier is not None and stated is not None:
            known[scope, identifier] = (int(stated), int(counted or 0))
    found = []
    scopes: tuple[Scope, ...] = ("organization", "key")
    for scope in scopes:
        for true in ledger.balances_of(scope, [identifier for of, identifier in known if of == scope]):
            amount, version = known[scope, true.id]
            if (amount, version) != (true.nanos, true.version):
                found.append((true, amount, version))
    return found


def _copies() -> Iterator[list[str]]:
    """Yield the names of all copies, in batches."""
    names = (str(name) for name in client().scan_iter(match="balance:*", count=_BATCH))
    yield from _batches(names)


def _batches(names: Iterable[str]) -> Iterator[list[str]]:
    left = iter(names)
    while batch := list(islice(left, _BATCH)):
        yield batch


def _ask(names: Sequence[str], *fields: str) -> list[list[str | None]]:
    pipe = client().pipeline(transaction=False)
    for name in names:
        pipe.hmget(name, fields)
    return list(pipe.execute())


def _named(name: str) -> tuple[Scope, UUID | None]:
    _, scope, identifier = name.split(":", 2)
    return ("organization" if scope == "organization" else "key"), find_id(identifier)


def _organization_of(note: Note) -> UUID | None:
    named = (_named(name) for name in note.holds)
    return next((identifier for scope, identifier in named if scope == "organization"), None)


def _usd(nanos: int | str) -> str:
    return plain(Decimal(nanos) / NANO)

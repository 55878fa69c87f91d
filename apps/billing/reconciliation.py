"""Reconciliation of balances: compares each with its ledger entries, its copy in Redis, and its holds.

Safe under load: values that change during the comparison are not reported. The audit of the ledger reads one snapshot
a question, and writes nothing.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal, NamedTuple
from uuid import UUID

import msgspec
from django.db import connection

from apps.billing import balance_copies
from apps.billing.balance_copies import BATCH, batches, parse_copy_key, read_fields
from apps.billing.balances import Scope, is_of_credits
from apps.billing.reservations import Note
from apps.billing.worker_leases import NOTES, SUM_HOLDS_LUA
from apps.kernel.ids import time_of
from apps.kernel.money import NANO, plain
from apps.kernel.valkey.redis import LuaScript, by_shard, client, money_pattern

_QUESTIONS: dict[Scope, str] = {
    "organization": """
        SELECT organization.id, organization.credits, coalesce(entries.total, 0)
        FROM organizations_organization organization
        LEFT JOIN (SELECT organization_id, sum(credits) AS total FROM billing_ledgerentry GROUP BY 1) entries
            ON entries.organization_id = organization.id
        WHERE organization.credits <> coalesce(entries.total, 0) ORDER BY 1
    """,
    "key": """
        SELECT api_key.id, api_key.usage, coalesce(entries.total, 0)
        FROM keys_apikey api_key
        LEFT JOIN (SELECT api_key_id, sum(usage) AS total FROM billing_ledgerentry GROUP BY 1) entries
            ON entries.api_key_id = api_key.id
        WHERE api_key.usage <> coalesce(entries.total, 0) ORDER BY 1
    """,
}


@dataclass(frozen=True, slots=True)
class LedgerMismatch:
    """A balance and the sum that it should be, in USD: an organization's credits or a key's usage."""

    scope: Scope
    id: UUID
    balance: Decimal
    entries: Decimal


def find_mismatches() -> list[LedgerMismatch]:
    """Return every balance that the ledger contradicts."""
    with connection.cursor() as cursor:
        found = []
        for scope, question in _QUESTIONS.items():
            cursor.execute(question)
            found += [LedgerMismatch(scope, *row) for row in cursor.fetchall()]
    return found


# Seconds after which a copy that is still behind counts as not published; settling takes milliseconds.
PATIENCE = 3.0

_HELD = LuaScript(
    SUM_HOLDS_LUA
    + """
    -- KEYS: balances. Returns, for each, the held amount and the sum of its open notes.
    local sums, answer = promised(), {}
    for i, name in ipairs(KEYS) do
      answer[i] = {redis.call('HGET', name, 'held') or '0', string.format('%.0f', sums[name] or 0)}
    end
    return answer
    """
)

Kind = Literal["credits", "usage", "open", "held", "copy"]


@dataclass(frozen=True, slots=True)
class AmountMismatch:
    """Two amounts that should be equal, of an organization or a key; `open` is about a request."""

    kind: Kind
    subject: UUID
    organization: UUID | None
    expected: str
    found: str


def compare_balances_with_ledger() -> Iterator[AmountMismatch]:
    """Yield every balance that differs from its ledger entries. Raises DatabaseError."""
    for one in find_mismatches():
        kind: Kind = "credits" if one.scope == "organization" else "usage"
        organization = one.id if one.scope == "organization" else None
        yield AmountMismatch(kind, one.id, organization, plain(one.entries), plain(one.balance))


def find_unrecorded_requests(before: datetime) -> Iterator[AmountMismatch]:
    """Yield requests admitted before a moment whose notes still exist: they were never recorded.

    A note is deleted when its request's row is in the log, so these are all. Raises RedisError.
    """
    for name in _scan_notes():
        for identifier, text in client().hscan_iter(name, count=BATCH):
            request = UUID(str(identifier))
            if time_of(request) < before:
                note = msgspec.json.decode(text, type=Note)
                held = plain(Decimal(note.amount) / NANO)
                yield AmountMismatch("open", request, _organization_of(note), "0", held)


def compare_holds() -> Iterator[AmountMismatch]:
    """Yield the balances whose held amount differs from their open requests. Raises RedisError.

    Candidates are collected without locking, then checked atomically.
    """
    promised: defaultdict[str, int] = defaultdict(int)
    for name in _scan_notes():
        for _, text in client().hscan_iter(name, count=BATCH):
            note = msgspec.json.decode(text, type=Note)
            for balance, amount in note.held():
                promised[balance] += amount
    suspects = []
    for names in batches(balance_copies.scan_copy_keys()):
        amounts = read_fields(names, "held")
        suspects += [name for name, (amount,) in zip(names, amounts, strict=True) if int(amount or 0) != promised[name]]
    for some in (some for names in by_shard(suspects, str).values() for some in batches(names)):
        answers = _HELD(some, [])
        for name, (found, expected) in zip(some, answers, strict=True):
            scope, identifier = parse_copy_key(name)
            if int(found) != int(expected) and identifier is not None:
                organization = identifier if scope == "organization" else None
                yield AmountMismatch("held", identifier, organization, _usd(expected), _usd(found))


class OpenHolds(NamedTuple):
    """Holds of requests on credits: their sum in USD, the number of requests, and when the oldest was admitted."""

    amount: Decimal
    requests: int
    oldest_at: datetime | None


def read_open_holds() -> tuple[OpenHolds, OpenHolds]:
    """Return the holds of open requests, and of answered requests that are not settled. Raises RedisError.

    All requests count, also those that hold no credits.
    """
    amounts, requests = [0, 0], [0, 0]
    oldest: list[datetime | None] = [None, None]
    for name in _scan_notes():
        for identifier, text in client().hscan_iter(name, count=BATCH):
            note = msgspec.json.decode(text, type=Note)
            kind = 0 if note.payload else 1
            admitted = time_of(UUID(str(identifier)))
            requests[kind] += 1
            amounts[kind] += int(note.amount) if any(map(is_of_credits, note.holds)) else 0
            oldest[kind] = min(oldest[kind] or admitted, admitted)
    held, answered = (OpenHolds(Decimal(amounts[kind]) / NANO, requests[kind], oldest[kind]) for kind in range(2))
    return held, answered


def find_holds_difference() -> Decimal:
    """Return the holds of requests less the amounts held on credits, in USD: 0 unless a hold was lost or left.

    Each difference is checked atomically, so that requests in progress make none. Raises RedisError.
    """
    differing = [one for one in compare_holds() if one.organization is not None]
    return sum((Decimal(one.expected) - Decimal(one.found) for one in differing), Decimal(0))


def compare_copies() -> Iterator[AmountMismatch]:
    """Yield the copies of balances that still differ after a waiting time.

    They are repaired as well. Raises RedisError and DatabaseError.
    """
    suspects = {
        (one.true.name, one.version)
        for names in batches(balance_copies.scan_copy_keys())
        for one in balance_copies.find_divergent_copies(names)
    }
    if not suspects:
        return
    time.sleep(PATIENCE)
    for names in batches(name for name, _ in suspects):
        again = balance_copies.find_divergent_copies(names)
        # A copy whose version has changed is being settled right now.
        for one in again:
            true, known = one.true, (one.amount, one.version)
            if (true.name, one.version) in suspects and known != (true.nanos, true.version):
                organization = true.id if true.scope == "organization" else None
                yield AmountMismatch("copy", true.id, organization, _usd(true.nanos), _usd(one.amount))
        balance_copies.repair_copies([one.true for one in again])


def _scan_notes() -> Iterator[str]:
    """Yield the names of all workers' notes. Raises RedisError."""
    return (str(name) for name in client().scan_iter(match=money_pattern(NOTES), count=BATCH))


def _organization_of(note: Note) -> UUID | None:
    owners = map(parse_copy_key, note.holds)
    return next((identifier for scope, identifier in owners if scope == "organization"), None)


def _usd(nanos: int | str) -> str:
    return plain(Decimal(nanos) / NANO)

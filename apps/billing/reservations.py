"""Reserve before the call, release after: concurrent requests never promise the same dollar twice.

A reservation is a note in Redis, kept under the worker process that owns it, and an amount held on the balances it
counts against. The note is also the write-ahead mark of the request: when its worker dies, the sweeper finds it.
Knows amounts and leases. Must never know what a request asks for; `payload` is the caller's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

import msgspec

from apps.billing import balances
from apps.kernel import generation
from apps.kernel.redis import LuaScript, client

WORKERS = "workers"
# A worker that has not been heard of for so long (seconds, by Redis' clock) is dead.
LEASE_SECONDS = 20.0

_RESERVE = LuaScript(
    """
    -- KEYS: two generations, the organization's and the key's balance, the worker's notes
    -- ARGV: two known words, a fresh word, amount, from credits ('1'/''), key limit or '', reservation id, note
    local words = {}
    for i = 1, 2 do
      words[i] = redis.call('GET', KEYS[i])
      if not words[i] then
        words[i] = ARGV[3]
        redis.call('SET', KEYS[i], ARGV[3])
      end
    end
    if words[1] ~= ARGV[1] or words[2] ~= ARGV[2] then return {'stale', words[1], words[2]} end

    -- Asked again because the answer was lost on its way: it is held already.
    if redis.call('HEXISTS', KEYS[5], ARGV[7]) == 1 then return {'held'} end

    local amount = tonumber(ARGV[4])
    local function balance(name)
      local b = redis.call('HMGET', name, 'amount', 'held')
      return b[1] and tonumber(b[1]), tonumber(b[2] or '0')
    end
    if ARGV[6] ~= '' then
      local used, held = balance(KEYS[4])
      if not used then return {'unknown', 'key'} end
      local left = tonumber(ARGV[6]) - used - held
      if left < amount or left <= 0 then return {'over_limit', string.format('%.0f', left)} end
    end
    if ARGV[5] ~= '' then
      local credits, held = balance(KEYS[3])
      if not credits then return {'unknown', 'organization'} end
      local left = credits - held
      if left < amount or left <= 0 then return {'no_credits', string.format('%.0f', left)} end
      redis.call('HINCRBY', KEYS[3], 'held', ARGV[4])
    end
    if ARGV[6] ~= '' then redis.call('HINCRBY', KEYS[4], 'held', ARGV[4]) end
    redis.call('HSET', KEYS[5], ARGV[7], ARGV[8])
    return {'held'}
    """
)

_RELEASE = LuaScript(
    """
    -- KEYS: per reservation the worker's notes; ARGV: per reservation its id
    local released = 0
    for i = 1, #KEYS do
      local text = redis.call('HGET', KEYS[i], ARGV[i])
      if text then
        local note = cjson.decode(text)
        if note.amount ~= '0' then
          for _, name in ipairs(note.holds) do redis.call('HINCRBY', name, 'held', '-' .. note.amount) end
        end
        redis.call('HDEL', KEYS[i], ARGV[i])
        released = released + 1
      end
    end
    return released
    """
)


class Outcome(StrEnum):
    """What came of asking for a reservation."""

    HELD = "held"
    STALE = "stale"
    UNKNOWN = "unknown"
    OVER_LIMIT = "over_limit"
    NO_CREDITS = "no_credits"


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome, and what goes with it.

    `words` are the current generations (catalog, organization) when stale, `unknown` the balance that has no copy yet,
    `left_nanos` what could still be spent when refused.
    """

    outcome: Outcome
    words: tuple[str, str] | None = None
    unknown: balances.Scope | None = None
    left_nanos: int = 0


class Note(msgspec.Struct, kw_only=True):
    """What is kept of a reservation: amount (1e-9 USD, as text), the balances it is held on, the caller's payload."""

    amount: str
    holds: list[str]
    payload: str


@dataclass(frozen=True, slots=True)
class Request:
    """A reservation to be made. `amount_nanos` is the worst case in 1e-9 USD; `key_limit_nanos` None is unlimited."""

    id: UUID
    worker: str
    organization_id: UUID
    api_key_id: UUID
    amount_nanos: int
    from_credits: bool
    key_limit_nanos: int | None
    catalog_word: str
    organization_word: str
    payload: str


def notes_key(worker: str) -> str:
    """Return the Redis key of a worker's notes."""
    return f"notes:{worker}"


def reserve(request: Request) -> Answer:
    """Hold the amount, or say why not; one atomic round trip. Raises RedisError."""
    organization = balances.key("organization", request.organization_id)
    api_key = balances.key("key", request.api_key_id)
    limited = request.key_limit_nanos is not None
    note = Note(
        amount=str(request.amount_nanos),
        holds=([organization] if request.from_credits else []) + ([api_key] if limited else []),
        payload=request.payload,
    )
    answer = _RESERVE(
        [
            generation.key(generation.CATALOG),
            generation.key(generation.organization(request.organization_id)),
            organization,
            api_key,
            notes_key(request.worker),
        ],
        [
            request.catalog_word,
            request.organization_word,
            generation.fresh_word(),
            request.amount_nanos,
            "1" if request.from_credits else "",
            "" if request.key_limit_nanos is None else request.key_limit_nanos,
            str(request.id),
            msgspec.json.encode(note),
        ],
    )
    outcome = Outcome(answer[0])
    match outcome:
        case Outcome.STALE:
            return Answer(outcome, words=(answer[1], answer[2]))
        case Outcome.UNKNOWN:
            return Answer(outcome, unknown=answer[1])
        case Outcome.OVER_LIMIT | Outcome.NO_CREDITS:
            return Answer(outcome, left_nanos=int(answer[1]))
        case _:
            return Answer(outcome)


def release(reservations: Sequence[tuple[str, UUID]]) -> int:
    """Give back what (worker, id) pairs hold, once each; return how many were still held. Raises RedisError."""
    if not reservations:
        return 0
    keys = [notes_key(worker) for worker, _ in reservations]
    return int(_RELEASE(keys, [str(identifier) for _, identifier in reservations]))


def beat(worker: str) -> None:
    """Tell that a worker lives. Raises RedisError."""
    client().zadd(WORKERS, {worker: _now()})


def retire(worker: str) -> None:
    """Let the sweeper take over what the worker may have left, at once. Raises RedisError."""
    client().zadd(WORKERS, {worker: 0})


def dead_workers() -> list[str]:
    """Return the workers whose lease ran out. Raises RedisError."""
    return [str(name) for name in client().zrangebyscore(WORKERS, "-inf", _now() - LEASE_SECONDS)]


def notes_of(worker: str) -> dict[UUID, Note]:
    """Return what a worker left behind. Raises RedisError."""
    notes = client().hgetall(notes_key(worker))
    return {UUID(str(identifier)): msgspec.json.decode(text, type=Note) for identifier, text in notes.items()}


def forget(worker: str) -> bool:
    """Strike a dead worker off once all its notes are released; return whether it was. Raises RedisError."""
    if client().exists(notes_key(worker)):
        return False
    client().zrem(WORKERS, worker)
    return True


def _now() -> float:
    """Return the store's own time in seconds: the one clock that all hosts share."""
    seconds, microseconds = client().time()
    return float(seconds) + float(microseconds) / 1e6

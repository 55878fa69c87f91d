"""Reserve before the call, release after: concurrent requests never promise the same dollar twice.

A reservation is a note in Redis, kept under the worker process that owns it, and an amount held on the balances it
counts against. The note is also the write-ahead mark of the request: when its worker dies, the sweeper finds it.
Knows amounts and leases. Must never know what a request asks for; `payload` is the caller's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
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
    -- KEYS: two generations, the organization's and the key's balance, the worker's notes, the requests in flight,
    --       the workers, and a bucket for each rate
    -- ARGV: two known words, a fresh word, amount, from credits ('1'/''), key limit or '', reservation id, note,
    --       most in flight or '', lease of one in flight (seconds), worker, and requests a minute for each rate
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

    -- Rates: a bucket of a minute's requests that fills evenly; kept is the time at which it will be full again.
    local clock = redis.call('TIME')
    local now = tonumber(clock[1]) + tonumber(clock[2]) / 1e6
    local full, tight = {}, nil
    for i = 8, #KEYS do
      local each = 60 / tonumber(ARGV[i + 4])
      full[i] = math.max(tonumber(redis.call('GET', KEYS[i]) or '0'), now) + each
      local left = math.floor((60 - (full[i] - now)) / each + 1e-9)
      if left < 0 then
        return {'too_fast', ARGV[i + 4], tostring(full[i] - now - 60), tostring(full[i] - each - now)}
      end
      if not tight or left < tight[2] then tight = {ARGV[i + 4], left, tostring(full[i] - now)} end
    end
    if ARGV[9] ~= '' then
      redis.call('ZREMRANGEBYSCORE', KEYS[6], '-inf', now)
      if redis.call('ZCARD', KEYS[6]) >= tonumber(ARGV[9]) then return {'too_many'} end
    end

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
    -- A worker whose heartbeat has not come through yet may die before it does: its notes must be found all the same.
    if redis.call('HLEN', KEYS[5]) == 1 then redis.call('ZADD', KEYS[7], 'NX', now, ARGV[11]) end
    for i = 8, #KEYS do redis.call('SET', KEYS[i], string.format('%.6f', full[i]), 'EX', 61) end
    if ARGV[9] ~= '' then
      redis.call('ZADD', KEYS[6], now + tonumber(ARGV[10]), ARGV[7])
      redis.call('EXPIRE', KEYS[6], ARGV[10])
    end
    if tight then return {'held', tight[1], tight[2], tight[3]} end
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
        if note.flight and note.flight ~= '' then redis.call('ZREM', note.flight, ARGV[i]) end
        redis.call('HDEL', KEYS[i], ARGV[i])
        released = released + 1
      end
    end
    return released
    """
)

# In one step: a worker believed dead may just be making a reservation.
_FORGET = LuaScript("return redis.call('EXISTS', KEYS[1]) == 0 and redis.call('ZREM', KEYS[2], ARGV[1]) + 1 or 0")
_encode = msgspec.json.Encoder().encode


class Outcome(StrEnum):
    """What came of asking for a reservation."""

    HELD = "held"
    STALE = "stale"
    UNKNOWN = "unknown"
    OVER_LIMIT = "over_limit"
    NO_CREDITS = "no_credits"
    TOO_FAST = "too_fast"
    TOO_MANY = "too_many"


class Rate(msgspec.Struct, frozen=True):
    """A limit of so many requests a minute; requests with the same bucket count together."""

    bucket: str
    per_minute: int


class RateLeft(msgspec.Struct, frozen=True):
    """How the tightest rate stands: requests a minute, how many are left, seconds until all are again.

    `retry_after` is the seconds until the next one, when there is none left.
    """

    per_minute: int
    left: int
    reset: float
    retry_after: float = 0.0


class Answer(msgspec.Struct, frozen=True):
    """The outcome, and what goes with it.

    `words` are the current generations (catalog, organization) when stale, `unknown` the balance that has no copy yet,
    `left_nanos` what could still be spent when refused, `rate` the tightest rate when held or too fast.
    """

    outcome: Outcome
    words: tuple[str, str] | None = None
    unknown: balances.Scope | None = None
    left_nanos: int = 0
    rate: RateLeft | None = None


class Note(msgspec.Struct, kw_only=True):
    """What is kept of a reservation: amount (1e-9 USD, as text), the balances it is held on, the caller's payload."""

    amount: str
    holds: list[str]
    payload: str
    # Where the request counts as being in flight.
    flight: str = ""


class Request(msgspec.Struct, frozen=True):
    """A reservation to be made. `amount_nanos` is the worst case in 1e-9 USD; a limit that is None is none.

    `rates` are what the request counts against, `most_in_flight` how many of the organization's may be answered at a
    time, `flight_seconds` after how long one is forgotten that nobody took out.
    """

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
    rates: tuple[Rate, ...] = ()
    most_in_flight: int | None = None
    flight_seconds: int = 3_600


@lru_cache(maxsize=8192)
def flight_key(organization_id: UUID) -> str:
    """Return the Redis key of an organization's requests in flight."""
    return f"flight:{organization_id}"


def notes_key(worker: str) -> str:
    """Return the Redis key of a worker's notes."""
    return f"notes:{worker}"


def reserve(request: Request) -> Answer:
    """Hold the amount, or say why not; one atomic round trip. Raises RedisError."""
    identifier = str(request.id)
    organization = balances.key("organization", request.organization_id)
    api_key = balances.key("key", request.api_key_id)
    limited = request.key_limit_nanos is not None
    note = Note(
        amount=str(request.amount_nanos),
        holds=([organization] if request.from_credits else []) + ([api_key] if limited else []),
        payload=request.payload,
        flight="" if request.most_in_flight is None else flight_key(request.organization_id),
    )
    answer = _RESERVE.together(
        [
            generation.key(generation.CATALOG),
            generation.key(generation.organization(request.organization_id)),
            organization,
            api_key,
            notes_key(request.worker),
            flight_key(request.organization_id),
            WORKERS,
            *(f"rate:{rate.bucket}" for rate in request.rates),
        ],
        [
            request.catalog_word,
            request.organization_word,
            # Not the request's id: it may be asked for again after the store has lost what it knew.
            generation.fresh_word(),
            request.amount_nanos,
            "1" if request.from_credits else "",
            "" if request.key_limit_nanos is None else request.key_limit_nanos,
            identifier,
            _encode(note),
            "" if request.most_in_flight is None else request.most_in_flight,
            request.flight_seconds,
            request.worker,
            *(rate.per_minute for rate in request.rates),
        ],
    )
    match outcome := Outcome(answer[0]):
        case Outcome.STALE:
            return Answer(outcome, words=(answer[1], answer[2]))
        case Outcome.UNKNOWN:
            return Answer(outcome, unknown=answer[1])
        case Outcome.OVER_LIMIT | Outcome.NO_CREDITS:
            return Answer(outcome, left_nanos=int(answer[1]))
        case Outcome.TOO_FAST:
            return Answer(outcome, rate=RateLeft(int(answer[1]), 0, float(answer[3]), retry_after=float(answer[2])))
        case Outcome.HELD if len(answer) > 1:
            return Answer(outcome, rate=RateLeft(int(answer[1]), int(answer[2]), float(answer[3])))
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
    return bool(_FORGET([notes_key(worker), WORKERS], [worker]))


def _now() -> float:
    """Return the store's own time in seconds: the one clock that all hosts share."""
    seconds, microseconds = client().time()
    return float(seconds) + float(microseconds) / 1e6

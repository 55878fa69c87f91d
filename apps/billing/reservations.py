"""Reservations and their holds: reserve before the call, adapt to the answer, release; no dollar is spent twice.

A reservation is a note in Redis, stored under its worker process, and an amount held on its balances. The note is also
the write-ahead record of the request: when its worker dies, the sweeper finds it. `payload` belongs to the caller. An
extension is one atomic round trip and may be repeated: it names the amount that it starts from, so the note shows
whether it was already applied. Lua functions tolerate a store clock that is set back: stored times are capped.
"""
# length: the scripts, and the values that they read and write, are one protocol

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar
from uuid import UUID

import msgspec

from apps.billing import balances
from apps.billing.balances import EPOCH
from apps.billing.ledger import Charge
from apps.billing.limit_holds import NO_USE, LimitHolds, MeasuredUse
from apps.billing.worker_leases import LEASE_SECONDS, WORKERS, notes_key
from apps.kernel import ids
from apps.kernel.money import nanos_up
from apps.kernel.valkey import generation
from apps.kernel.valkey.redis import SHARD_COUNT, LuaScript, client, lua_key, money_key, shard_of

LIMITS_LUA = f"""
    -- The time at which a bucket of a minute's requests is full again; at most a minute from now.
    local function bucket_of(name, now)
      local full = tonumber(redis.call('GET', name) or '0')
      if full <= now + 60 then return math.max(full, now) end
      -- Stored at once, because a refusal writes nothing and would meet the future time again.
      redis.call('SET', name, string.format('%.6f', now + 60), 'EX', 61)
      return now + 60
    end

    -- Whether the maximum number is in flight; leases end at most `lease` seconds from now.
    local function crowded(name, now, most, lease)
      redis.call('ZREMRANGEBYSCORE', name, '-inf', now)
      if redis.call('ZCARD', name) < most then return false end
      local late = redis.call('ZRANGEBYSCORE', name, '(' .. string.format('%.6f', now + lease), '+inf')
      for _, one in ipairs(late) do redis.call('ZADD', name, now + lease, one) end
      return true
    end

    -- The amount of a balance, nil without a copy of the current epoch, and the held amount.
    local epoch = nil
    local function balance(name)
      epoch = epoch or redis.call('GET', {lua_key(EPOCH)})
      local b = redis.call('HMGET', name, 'amount', 'held', 'epoch')
      if not b[1] or b[3] ~= epoch then return nil end
      -- Arithmetic reads a number from text at half the cost of `tonumber`.
      return b[1] + 0, (b[2] or 0) + 0
    end
"""


# The grant of a request that wants more than 1/16 of the remaining amount: a quarter of it if almost nothing is held,
# else the larger of 1/16 and a useful part of up to 1/32 of the total. A single request is not cut short, and more than
# twenty concurrent ones get about the same.
PARTIAL_GRANT_LUA: Final = """
    local function is_alone(left, held) return held * 16 <= left end
    local function granted(want, part, least, left, all, alone)
      if not left or want <= left / 16 then return want end
      local share = alone and left / 4 or math.max(left / 16, math.min(part, all / 32))
      return math.floor(math.max(least, math.min(want, left, share)))
    end
"""

# Writes the text of a note: first the fields that scripts decide and read, then those of the worker.
NOTE_LUA: Final = """
    local function write_note(amount, written, counts, fields)
      local own = '{"amount":"' .. amount .. '","written":"' .. written .. '","counts":['
      return own .. table.concat(counts, ',') .. '],' .. string.sub(fields, 2)
    end
    local function write_count(name, base, each) return '["' .. name .. '",' .. base .. ',' .. each .. ']' end
"""

_EXTEND = LuaScript(
    LIMITS_LUA
    + PARTIAL_GRANT_LUA
    + """
    -- KEYS: the worker's notes, the balances that the reservation is held on, and older counters of limits
    -- ARGV: its id, the amount that it is known to hold, how much more is wanted, a useful part of it, the least, and
    --       the number of balances; for each balance the limit of usage, or '' for credits, and the number of its
    --       older counters
    local text = redis.call('HGET', KEYS[1], ARGV[1])
    local note = text and cjson.decode(text)
    -- Released, or recorded: this came late on its way.
    if not note or note.payload == '' then return {'gone'} end
    -- Repeated because the answer was lost: the extension is already held.
    if note.amount ~= ARGV[2] then return {'held', note.amount} end
    local least, left, all, alone = tonumber(ARGV[5]), nil, nil, true
    local last = 1 + tonumber(ARGV[6])
    local older = last + 1
    for i = 2, last do
      local amount, held = balance(KEYS[i])
      if not amount then return {'unknown', KEYS[i]} end
      for _ = 1, tonumber(ARGV[2 * i + 4]) do
        local before, kept = balance(KEYS[older])
        if not before then return {'unknown', KEYS[older]} end
        amount, held, older = amount + before, held + kept, older + 1
      end
      if ARGV[2 * i + 3] ~= '' then amount = tonumber(ARGV[2 * i + 3]) - amount end
      local free = amount - held
      if free < least or free <= 0 then return {'short', KEYS[i]} end
      left = left and math.min(left, free) or free
      all = all and math.min(all, amount) or amount
      alone = alone and is_alone(free, held)
    end
    local more = string.format('%.0f', granted(tonumber(ARGV[3]), tonumber(ARGV[4]), least, left, all, alone))
    local total = string.format('%.0f', tonumber(note.amount) + tonumber(more))
    for i = 2, last do redis.call('HINCRBY', KEYS[i], 'held', more) end
    redis.call('HSET', KEYS[1], ARGV[1], (string.gsub(text, '^{"amount":"%d+"', '{"amount":"' .. total .. '"', 1)))
    return {'held', total}
    """
)

_encode = msgspec.json.Encoder().encode
_NOTHING: Final[Mapping[str, int]] = MappingProxyType({})


class _NoteFields(msgspec.Struct):
    """The fields of a note that its worker knows.

    An empty payload means that its request has been recorded and waits for settlement.
    """

    holds: tuple[str, ...] = ()
    payload: str = ""
    # Redis key of the requests in flight that count it.
    flight: str = ""


class Note(_NoteFields, kw_only=True):
    """The stored form of a reservation: amount (1e-9 USD, as text), balances, the caller's payload.

    Scripts write the other fields before those of the worker (`NOTE_LUA`).
    """

    amount: str
    # Tokens that the answer may have, as far as limits of tokens say.
    written: str = "0"
    # Holds on limits that count no money: the counter's Redis key, the amount, and the amount for each granted token.
    counts: tuple[tuple[str, int, int], ...] = ()

    def held(self) -> Iterator[tuple[str, int]]:
        """Yield each balance with the amount that is held on it."""
        for name in self.holds:
            yield name, int(self.amount)
        for name, base, each in self.counts:
            yield name, base + each * int(self.written)


class TokenRequest(msgspec.Struct, frozen=True):
    """Tokens for limits that count them: those that an answer may have (all, a useful part, the least), and the
    prompt's."""

    want: int = 0
    part: int = 0
    least: int = 0
    prompt: int = 0


_NO_TOKENS: Final = TokenRequest()


class Hold(msgspec.Struct, frozen=True):
    """A reservation: an amount in 1e-9 USD, held on some balances (their Redis keys) for a worker.

    `shard` has its note and balances, and gets its record. `limits` are the limits it is held on; those of money are
    the last of the balances, too. `tokens` is how many tokens the answer may have, None where it may have all.
    """

    id: str
    worker: str
    amount_nanos: int
    balances: tuple[str, ...]
    flight: str
    shard: int = 0
    limits: LimitHolds | None = None
    tokens: int | None = None


class SettledHold(msgspec.Struct, frozen=True):
    """A reservation with a known cost: the amount that it goes on holding (1e-9 USD), the worker's fields of its final
    note with the balances that it is held on, and what limits count."""

    hold: Hold
    amount: int
    note: bytes
    use: MeasuredUse = NO_USE


class ExtensionOutcome(StrEnum):
    """The outcome of an extension: held, not covered by the remaining amount, or the reservation is gone."""

    HELD = "held"
    SHORT = "short"
    GONE = "gone"
    UNKNOWN = "unknown"


Hold_co = TypeVar("Hold_co", covariant=True)


class HoldExtension(msgspec.Struct, Generic[Hold_co], frozen=True):
    """The outcome, the hold as it is now, and the Redis key of the balance that was short or has no copy."""

    growth: ExtensionOutcome
    hold: Hold_co
    balance: str = ""


def extend(hold: Hold, want_nanos: int, part_nanos: int, least_nanos: int) -> HoldExtension[Hold]:
    """Hold more: the wanted amount, or as much of it as leaves room for others, but at least the least.

    May be repeated with the same hold. One atomic round trip. Raises RedisError; it is then unknown whether it was
    done.
    """
    outcome, *rest = _EXTEND.run_batched(
        [notes_key(hold.worker, hold.shard), *hold.balances, *_older_counters_of(hold)],
        [
            hold.id,
            str(hold.amount_nanos),
            want_nanos,
            part_nanos,
            least_nanos,
            len(hold.balances),
            *_ceilings_of(hold),
        ],
    )
    growth = ExtensionOutcome(outcome)
    if growth is ExtensionOutcome.HELD:
        return HoldExtension(growth, msgspec.structs.replace(hold, amount_nanos=int(rest[0])))
    return HoldExtension(growth, hold, rest[0] if rest else "")


def _ceilings_of(hold: Hold) -> list[int | str]:
    """Return for each balance that a reservation is held on the limit of usage, empty for credits, and the number of
    its older counters."""
    ceilings = _NOTHING if hold.limits is None else hold.limits.ceilings
    older = {} if hold.limits is None else hold.limits.older
    arguments: list[int | str] = []
    for name in hold.balances:
        arguments += [ceilings.get(name, ""), len(older.get(name, ()))]
    return arguments


def _older_counters_of(hold: Hold) -> list[str]:
    """Return the older counters of limits of money, in the order of the balances."""
    if hold.limits is None or not hold.limits.older:
        return []
    return [older for name in hold.balances for older in hold.limits.older.get(name, ())]


def reduce_to_cost(hold: Hold, charge: Charge, use: MeasuredUse = NO_USE) -> SettledHold:
    """Return the remaining hold once the request's charge is known, until it is settled; `use` is what the request adds
    to limits."""
    credits, usage = nanos_up(charge.storage - charge.credits), nanos_up(charge.usage)
    stays = max(credits, usage)
    counted, own = use.money, hold.balances
    if counted and own[-len(counted) :] == counted:
        # The usual case: every counter of money counts it, and they are the last of the balances.
        own = own[: -len(counted)]
    kept = [
        name
        for name in own
        if (credits if balances.CREDITS in name else name in counted if balances.COUNTERS in name else usage)
    ]
    if len(own) < len(hold.balances):
        kept += counted
    return SettledHold(hold, stays, _encode(_NoteFields(tuple(kept))), use)


# Checks shared by both scripts, with the same keys and arguments; they count and hold nothing.
_CHECKS_LUA = """
    -- KEYS: two generations, the organization's and the key's balance, the worker's notes, the requests in flight,
    --       the workers, and a bucket for each rate
    -- ARGV: two known generation tokens, a fresh one, amount wanted, from credits ('1'/''), reservation id, fields of
    --       its note, most in flight or '', lease of one in flight (seconds), worker, a useful part of the amount,
    --       the least of it, the number of rates, requests a minute for each rate; and with limits: tokens of the
    --       answer that are wanted, a useful part of them, the least, those of the prompt, and JSON with lists of the
    --       limits' counters, the most that each may reach, and the letters of their measures; where any has some, also
    --       of the amounts to warn at, of whether they have to cover all, and of older counters, each after the place
    --       of its limit. The key's own limit, whose counter is the key's balance, is the first.
    local tokens = {}
    for i = 1, 2 do
      tokens[i] = redis.call('GET', KEYS[i])
      if not tokens[i] then
        tokens[i] = ARGV[3]
        redis.call('SET', KEYS[i], ARGV[3])
      end
    end
    if tokens[1] ~= ARGV[1] or tokens[2] ~= ARGV[2] then return {'stale', tokens[1], tokens[2]} end

    -- Repeated because the answer was lost: it is already held.
    local before = redis.call('HGET', KEYS[5], ARGV[6])
    if before then
      before = cjson.decode(before)
      return {'held', before.amount, '', '', '', '', '', before.written or '0'}
    end

    -- Rates: a bucket of a minute's requests that fills evenly; kept is the time at which it will be full again.
    local clock = redis.call('TIME')
    local now = tonumber(clock[1]) + tonumber(clock[2]) / 1e6
    local full, tight, rates = {}, nil, tonumber(ARGV[13])
    for i = 8, 7 + rates do
      local each = 60 / tonumber(ARGV[i + 6])
      full[i] = bucket_of(KEYS[i], now) + each
      local left = math.floor((60 - (full[i] - now)) / each + 1e-9)
      if left < 0 then
        return {'too_fast', ARGV[i + 6], tostring(full[i] - now - 60), tostring(full[i] - each - now)}
      end
      if not tight or left < tight[2] then tight = {ARGV[i + 6], left, tostring(full[i] - now)} end
    end
    if ARGV[8] ~= '' and crowded(KEYS[6], now, tonumber(ARGV[8]), tonumber(ARGV[9])) then return {'too_many'} end

    -- Credits and limits are one list, the credits last: all are read before any refuses, so that counters without
    -- copies are all known at once. One list a field: a table for each limit would cost as much as half a command.
    local names, ceilings, letters, used, held, wholes = {}, {}, {}, {}, {}, nil
    local least, at, key, limited = tonumber(ARGV[12]), 13 + rates, KEYS[4], nil
    local whole, whole_tokens, least_tokens, prompt = tonumber(ARGV[4]), 0, 0, 0
    if ARGV[at + 5] then
      local missing = {'unknown', 'limit'}
      limited, prompt = cjson.decode(ARGV[at + 5]), tonumber(ARGV[at + 4])
      whole_tokens, least_tokens = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 3])
      names, ceilings, letters, wholes = limited.counters, limited.ceilings, limited.letters, limited.wholes
      for i = 1, #names do
        used[i], held[i] = balance(names[i])
        if not used[i] then
          if names[i] == key then return {'unknown', 'key'} end
          missing[#missing + 1] = tostring(i - 1)
        end
      end
      for k, one in ipairs(limited.older or {}) do
        local before, kept = balance(one[2])
        -- Their places are after those of the limits.
        if not before then missing[#missing + 1] = tostring(#names + k - 1) end
        used[one[1]], held[one[1]] = (used[one[1]] or 0) + (before or 0), (held[one[1]] or 0) + (kept or 0)
      end
      if missing[3] then return missing end
    end
    local credits, count = nil, #names
    if ARGV[5] ~= '' then
      local amount, reserved = balance(KEYS[3])
      if not amount then return {'unknown', 'organization'} end
      count = count + 1
      credits = count
      names[count], ceilings[count], letters[count], used[count], held[count] = KEYS[3], amount, 'u', 0, reserved
    end
    -- By the letter: the least need, and that of a limit that has to cover all.
    local needs = {u = least, r = 1, t = prompt + least_tokens, i = prompt, o = least_tokens}
    local whole_needs = wholes and {u = whole, r = 1, t = prompt + whole_tokens, i = prompt, o = whole_tokens}
    -- The part of a limit that is not for answers.
    local bases = {u = 0, t = prompt, o = 0}
    local credits_left, key_left, money_left, all, alone = nil, nil, nil, nil, true
    local tokens_left, tokens_all, tokens_alone = nil, nil, true
    -- The key's own limit is the first to refuse, then the credits.
    local first = credits and (names[1] == key and 1 or 0) or count
    for k = 1, count do
      local i = k <= first and k or k == first + 1 and credits or k - 1
      local letter, mine, is_whole = letters[i], held[i], wholes and wholes[i]
      local left, need = ceilings[i] - used[i] - mine, is_whole and whole_needs[letter] or needs[letter]
      if left < need or left <= 0 then
        local texts = {}
        for n, amount in ipairs({left, used[i], mine, need}) do texts[n] = string.format('%.0f', amount) end
        if i == credits then return {'no_credits', texts[1]} end
        if names[i] == key then return {'over_limit', texts[1]} end
        return {'limit_reached', tostring(i - 1), texts[2], texts[3], texts[4]}
      end
      if i == credits then credits_left = left elseif names[i] == key then key_left = left end
      local free = bases[letter] and left - bases[letter]
      if is_whole or not free then
        -- It covers whatever the others grant.
      elseif letter == 'u' then
        money_left = money_left and money_left < free and money_left or free
        all = all and all < free + mine and all or free + mine
        alone = alone and is_alone(free, mine)
      else
        tokens_left = tokens_left and tokens_left < free and tokens_left or free
        tokens_all = tokens_all and tokens_all < free + mine and tokens_all or free + mine
        tokens_alone = tokens_alone and is_alone(free, mine)
      end
    end
"""
_RESERVE = LuaScript(
    LIMITS_LUA
    + PARTIAL_GRANT_LUA
    + NOTE_LUA
    + _CHECKS_LUA
    + f"""
    -- A worker that stood still may reserve before its next heartbeat: what it holds from now on must not be swept. And
    -- one that dies before its first heartbeat must still be found by its notes.
    local beat = redis.call('ZSCORE', KEYS[7], ARGV[10])
    if not beat or now - tonumber(beat) > {LEASE_SECONDS / 2} then redis.call('ZADD', KEYS[7], now, ARGV[10]) end
    """
    + """
    local money, tokens = granted(whole, tonumber(ARGV[11]), least, money_left, all, alone), 0
    if limited then
      tokens = granted(whole_tokens, tonumber(ARGV[at + 2]), least_tokens, tokens_left, tokens_all, tokens_alone)
    end
    local amount, written, counts, warned = string.format('%.0f', money), string.format('%.0f', tokens), {}, {}
    -- Limits that count the same hold the same: by the letter, the texts of the held amount, and of its parts.
    local prompt_text, warns_at = ARGV[at + 4], limited and limited.warns_at
    local texts = {u = amount, r = '1', i = prompt_text, o = written}
    if limited then texts.t = string.format('%.0f', prompt + tokens) end
    local counted, eaches = {r = '1', t = prompt_text, i = prompt_text, o = '0'}, {r = '0', t = '1', i = '0', o = '1'}
    for i = 1, count do
      local name, letter = names[i], letters[i]
      redis.call('HINCRBY', name, 'held', texts[letter])
      if letter ~= 'u' then counts[#counts + 1] = write_count(name, counted[letter], eaches[letter]) end
      if warns_at and warns_at[i] and used[i] + held[i] + texts[letter] > warns_at[i] then
        warned[#warned + 1] = tostring(i - 1)
      end
    end
    redis.call('HSET', KEYS[5], ARGV[6], write_note(amount, written, counts, ARGV[7]))
    for i = 8, 7 + rates do redis.call('SET', KEYS[i], string.format('%.6f', full[i]), 'EX', 61) end
    if ARGV[8] ~= '' then
      redis.call('ZADD', KEYS[6], now + tonumber(ARGV[9]), ARGV[6])
      redis.call('EXPIRE', KEYS[6], ARGV[9])
    end
    local function after(left) return left and string.format('%.0f', left - money) or '' end
    tight = tight or {'', '', ''}
    return {'held', amount, after(credits_left), after(key_left), tight[1], tight[2], tight[3], written, unpack(warned)}
    """
)

_LOOK = LuaScript(LIMITS_LUA + PARTIAL_GRANT_LUA + _CHECKS_LUA + "return {'allowed'}")

_RELEASE = LuaScript(
    """
    -- KEYS: per reservation the worker's notes, all of one shard; ARGV: per reservation its id
    -- All notes are read before anything changes: one that cannot be read must not leave the others half released.
    local notes = {}
    for i = 1, #KEYS do
      local text = redis.call('HGET', KEYS[i], ARGV[i])
      notes[i] = text and cjson.decode(text)
    end
    -- Sums by balance, because requests of a batch share theirs; a sum stays below 2^53, where it is exact.
    local released, sums = 0, {}
    local function subtract(name, sum)
      if sum ~= 0 then redis.call('HINCRBY', name, 'held', string.format('%.0f', 0 - sum)) end
    end
    local function give_back(name, amount)
      local sum = sums[name] or 0
      if sum + amount > 2^53 then
        subtract(name, sum)
        sum = 0
      end
      sums[name] = sum + amount
    end
    for i, note in ipairs(notes) do
      -- One that is named twice is there once.
      if note and redis.call('HDEL', KEYS[i], ARGV[i]) == 1 then
        local amount, written = tonumber(note.amount), tonumber(note.written or '0')
        for _, name in ipairs(note.holds) do give_back(name, amount) end
        for _, one in ipairs(note.counts or {}) do give_back(one[1], one[2] + one[3] * written) end
        if note.flight and note.flight ~= '' then redis.call('ZREM', note.flight, ARGV[i]) end
        released = released + 1
      end
    end
    for name, sum in pairs(sums) do subtract(name, sum) end
    return released
    """
)


class ReservationOutcome(StrEnum):
    """The outcome of a reservation."""

    HELD = "held"
    # The request would be admitted now; nothing is held.
    ALLOWED = "allowed"
    STALE = "stale"
    UNKNOWN = "unknown"
    OVER_LIMIT = "over_limit"
    NO_CREDITS = "no_credits"
    TOO_FAST = "too_fast"
    TOO_MANY = "too_many"
    LIMIT_REACHED = "limit_reached"


class RateLimit(msgspec.Struct, frozen=True):
    """A limit in requests a minute; requests with the same bucket count together."""

    bucket: str
    per_minute: int


class RateLimitStatus(msgspec.Struct, frozen=True):
    """The state of the tightest rate limit: requests a minute, remaining requests, seconds until it is full again.

    `retry_after` is the seconds until the next request, if none is left.
    """

    per_minute: int
    left: int
    reset: float
    retry_after: float = 0.0


class ReachedLimit(msgspec.Struct, frozen=True):
    """The limit that refused: its place in the request, and the used, the held and the needed amount, in units."""

    place: int
    used: int
    held: int
    needed: int


class ReservationResult(msgspec.Struct, frozen=True):
    """The outcome and its details.

    `hold` is the reservation, `generation_tokens` are the current ones (catalog, organization) if stale, `unknown` the
    balance without a copy, `left_nanos` the remaining amount if refused, `rate` the tightest rate if held or too fast;
    `credits_left` and `key_left` are the remaining amounts after the hold, if checked. `limits` are the places of
    limits in the request: those without a copy if unknown, those to warn about if held.
    """

    outcome: ReservationOutcome
    hold: Hold | None = None
    generation_tokens: tuple[str, str] | None = None
    unknown: balances.Scope | None = None
    left_nanos: int = 0
    rate: RateLimitStatus | None = None
    credits_left: int | None = None
    key_left: int | None = None
    reached: ReachedLimit | None = None
    limits: tuple[int, ...] = ()


class ReservationRequest(msgspec.Struct, frozen=True):
    """A reservation to make, of an amount in 1e-9 USD; None means no limit.

    At least `least_nanos` of `amount_nanos` are granted (None: all of it); if that is much of the remaining amount,
    about `part_nanos`, which is already useful (None: the least). `rates` are the limits that count the request,
    `most_in_flight` is the organization's maximum of concurrent requests, `flight_seconds` the lease of one that is
    never removed. `tokens` are those that `limits` of tokens hold for the answer; the key's own limit, whose counter is
    the key's balance, is the first of them.
    """

    id: UUID
    worker: str
    organization_id: UUID
    api_key_id: UUID
    amount_nanos: int
    from_credits: bool
    catalog_token: str
    organization_token: str
    payload: str
    rates: tuple[RateLimit, ...] = ()
    most_in_flight: int | None = None
    flight_seconds: int = 3_600
    part_nanos: int | None = None
    least_nanos: int | None = None
    limits: LimitHolds | None = None
    tokens: TokenRequest = _NO_TOKENS


@lru_cache(maxsize=8192)
def flight_key(organization_id: UUID) -> str:
    """Return the Redis key of an organization's requests in flight."""
    return money_key(f"flight:{organization_id}", shard_of(organization_id))


def rate_key(rate: RateLimit, shard: int) -> str:
    """Return the Redis key of a rate limit's bucket."""
    return money_key(f"rate:{rate.bucket}", shard)


def reserve(request: ReservationRequest) -> ReservationResult:
    """Hold the amount or a part of it, or return the refusal; one atomic round trip. Raises RedisError."""
    return _ask(_RESERVE, request)


def look(request: ReservationRequest) -> ReservationResult:
    """Return whether the amount could be held now, without holding or counting. One round trip. Raises RedisError."""
    return _ask(_LOOK, request)


class _Keys(NamedTuple):
    """The Redis keys of an API key's reservations, and their shard; `every` are those of the scripts, in order."""

    shard: int
    organization: str
    flight: str
    every: tuple[str, ...]


@lru_cache(maxsize=8192)
def _keys_of(organization_id: UUID, api_key_id: UUID, worker: str) -> _Keys:
    shard, flight = shard_of(organization_id), flight_key(organization_id)
    organization = balances.key("organization", organization_id)
    every = (
        generation.keys_of(generation.CATALOG)[shard],
        generation.keys_of(generation.organization_scope(organization_id))[0],
        organization,
        balances.key("key", api_key_id, organization_id),
        notes_key(worker, shard),
        flight,
        WORKERS[shard],
    )
    return _Keys(shard, organization, flight, every)


def _ask(script: LuaScript, request: ReservationRequest) -> ReservationResult:
    identifier = ids.text_of(request.id)
    shard, organization, flight, every = _keys_of(request.organization_id, request.api_key_id, request.worker)
    holds: tuple[str, ...] = (organization,) if request.from_credits else ()
    counted = "" if request.most_in_flight is None else flight
    least = request.amount_nanos if request.least_nanos is None else request.least_nanos
    limits, tokens = request.limits, request.tokens
    if limits is not None:
        holds += limits.money
    keys = [*every, *[rate_key(rate, shard) for rate in request.rates]] if request.rates else [*every]
    answer = script.run_batched(
        keys,
        [
            request.catalog_token if SHARD_COUNT == 1 else generation.shard_token(request.catalog_token, shard),
            request.organization_token,
            # Not the request's id: it may be used again after the store has lost its data.
            generation.new_generation_token(),
            request.amount_nanos,
            "1" if request.from_credits else "",
            identifier,
            _encode(_NoteFields(holds, request.payload, counted)),
            "" if request.most_in_flight is None else request.most_in_flight,
            request.flight_seconds,
            request.worker,
            least if request.part_nanos is None else request.part_nanos,
            least,
            len(request.rates),
            *([rate.per_minute for rate in request.rates] if request.rates else ()),
            *(() if limits is None else (tokens.want, tokens.part, tokens.least, tokens.prompt, limits.terms)),
        ],
    )
    if answer[0] != ReservationOutcome.HELD:
        return _refused(answer, request.catalog_token, shard)
    granted = int(answer[7]) if limits is not None and limits.has_answers else tokens.want
    covered = None if granted >= tokens.want else granted
    hold = Hold(identifier, request.worker, int(answer[1]), holds, flight, shard, limits, covered)
    rate = RateLimitStatus(int(answer[4]), int(answer[5]), float(answer[6])) if answer[4] else None
    credits_left, key_left = int(answer[2]) if answer[2] else None, int(answer[3]) if answer[3] else None
    warned = tuple(map(int, answer[8:])) if len(answer) > 8 else ()
    return ReservationResult(ReservationOutcome.HELD, hold, None, None, 0, rate, credits_left, key_left, None, warned)


def _refused(answer: Sequence[Any], catalog_token: str, shard: int) -> ReservationResult:
    """Return the refusal and its details."""
    outcome = ReservationOutcome(answer[0])
    match outcome:
        case ReservationOutcome.STALE:
            catalog_token = generation.confirm_token(answer[1], catalog_token, shard)
            return ReservationResult(outcome, generation_tokens=(catalog_token, answer[2]))
        case ReservationOutcome.UNKNOWN:
            return ReservationResult(outcome, unknown=answer[1], limits=tuple(map(int, answer[2:])))
        case ReservationOutcome.LIMIT_REACHED:
            return ReservationResult(outcome, reached=ReachedLimit(*map(int, answer[1:])))
        case ReservationOutcome.OVER_LIMIT | ReservationOutcome.NO_CREDITS:
            return ReservationResult(outcome, left_nanos=int(answer[1]))
        case ReservationOutcome.TOO_FAST:
            return ReservationResult(
                outcome, rate=RateLimitStatus(int(answer[1]), 0, float(answer[3]), retry_after=float(answer[2]))
            )
        case _:
            return ReservationResult(outcome)


def release(reservations: Sequence[tuple[str, UUID]], shard: int) -> int:
    """Release the holds of (worker, id) pairs in a shard, once each; return how many were still held.

    Raises RedisError.
    """
    if not reservations:
        return 0
    keys = [notes_key(worker, shard) for worker, _ in reservations]
    return int(_RELEASE(keys, [str(identifier) for _, identifier in reservations]))


def find_note(worker: str, identifier: UUID, shard: int) -> Note | None:
    """Return a reservation's note, None if there is none. Raises RedisError."""
    text = client().hget(notes_key(worker, shard), ids.text_of(identifier))
    return None if text is None else msgspec.json.decode(text, type=Note)


def notes_of(worker: str, shard: int) -> dict[UUID, Note]:
    """Return a worker's notes in a shard. Raises RedisError."""
    notes = client().hgetall(notes_key(worker, shard))
    return {UUID(str(identifier)): msgspec.json.decode(text, type=Note) for identifier, text in notes.items()}

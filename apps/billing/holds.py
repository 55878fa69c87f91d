"""Holds on balances: the note of a reservation, its extension while an answer grows, and its reduction to the cost.

An extension is one atomic round trip and may be repeated: it names the amount that it starts from, so the note shows
whether it was already applied.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Generic, TypeVar

import msgspec

from apps.billing import balances
from apps.billing.ledger import Charge
from apps.billing.limit_scripts import LIMITS_LUA
from apps.billing.worker_leases import notes_key
from apps.kernel.money import nanos_up
from apps.kernel.valkey.redis import LuaScript

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

_EXTEND = LuaScript(
    LIMITS_LUA
    + PARTIAL_GRANT_LUA
    + f"local usage = '{balances.USAGE}'"
    + """
    -- KEYS: the worker's notes, and the balances that the reservation is held on
    -- ARGV: its id, the amount that it is known to hold, how much more is wanted, a useful part of it, and the least;
    --       the key's limit or ''
    local text = redis.call('HGET', KEYS[1], ARGV[1])
    local note = text and cjson.decode(text)
    -- Released, or recorded: this came late on its way.
    if not note or note.payload == '' then return {'gone'} end
    -- Repeated because the answer was lost: the extension is already held.
    if note.amount ~= ARGV[2] then return {'held', note.amount} end
    local least, left, all, alone = tonumber(ARGV[5]), nil, nil, true
    for i = 2, #KEYS do
      local amount, held = balance(KEYS[i])
      if not amount then return {'unknown', KEYS[i]} end
      if string.find(KEYS[i], usage, 1, true) then amount = tonumber(ARGV[6]) - amount end
      local free = amount - held
      if free < least or free <= 0 then return {'short', KEYS[i]} end
      left = left and math.min(left, free) or free
      all = all and math.min(all, amount) or amount
      alone = alone and is_alone(free, held)
    end
    local more = string.format('%.0f', granted(tonumber(ARGV[3]), tonumber(ARGV[4]), least, left, all, alone))
    local total = string.format('%.0f', tonumber(note.amount) + tonumber(more))
    for i = 2, #KEYS do redis.call('HINCRBY', KEYS[i], 'held', more) end
    redis.call('HSET', KEYS[1], ARGV[1], (string.gsub(text, '^{"amount":"%d+"', '{"amount":"' .. total .. '"', 1)))
    return {'held', total}
    """
)

_encode = msgspec.json.Encoder().encode


class Note(msgspec.Struct):
    """The stored form of a reservation: amount (1e-9 USD, as text), balances, the caller's payload.

    An empty payload means that its request has been recorded and waits for settlement. The amount comes first because
    scripts replace it in the text.
    """

    amount: str
    holds: tuple[str, ...]
    payload: str = ""
    # Redis key of the requests in flight that count it.
    flight: str = ""


class Hold(msgspec.Struct, frozen=True):
    """A reservation: an amount in 1e-9 USD, held on some balances (their Redis keys) for a worker.

    `shard` has its note and balances, and gets its record. `key_limit_nanos` is the limit of the API key among the
    balances.
    """

    id: str
    worker: str
    amount_nanos: int
    balances: tuple[str, ...]
    flight: str
    key_limit_nanos: int | None = None
    shard: int = 0


class SettledHold(msgspec.Struct, frozen=True):
    """A reservation with a known cost: its final note, and the held amount on each balance (1e-9 USD)."""

    hold: Hold
    note: bytes
    stays: tuple[int, ...]


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
        [notes_key(hold.worker, hold.shard), *hold.balances],
        [
            hold.id,
            str(hold.amount_nanos),
            want_nanos,
            part_nanos,
            least_nanos,
            "" if hold.key_limit_nanos is None else hold.key_limit_nanos,
        ],
    )
    growth = ExtensionOutcome(outcome)
    if growth is ExtensionOutcome.HELD:
        return HoldExtension(growth, msgspec.structs.replace(hold, amount_nanos=int(rest[0])))
    return HoldExtension(growth, hold, rest[0] if rest else "")


def reduce_to_cost(hold: Hold, charge: Charge) -> SettledHold:
    """Return the remaining hold once the request's charge is known, until it is settled."""
    credits, usage = nanos_up(charge.storage - charge.credits), nanos_up(charge.usage)
    stays = max(credits, usage)
    kept: list[str] = []
    amounts: list[int] = []
    for name in hold.balances:
        owed = credits if balances.CREDITS in name else usage
        amounts.append(stays if owed else 0)
        if owed:
            kept.append(name)
    return SettledHold(hold, _encode(Note(str(stays), tuple(kept))), tuple(amounts))

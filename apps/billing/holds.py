"""Holds on balances: a reservation's note, its extension while an answer grows, and its reduction to the cost.

An extension is one atomic round trip and may be repeated: it names the amount that it starts from, and the note tells
whether that has been passed already. Knows amounts and notes. Must never know what a request asks for.
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
from apps.kernel.redis import LuaScript

# What is granted of more than a 16th of what is left: a quarter of it to a request that finds next to nothing held; to
# others a 16th, or a useful part of up to a 32nd of all there is, if that is more. So one request alone is not cut
# short, and of many at once more than twenty get about the same.
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
    -- Asked again because the answer was lost on its way: it holds more already.
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
    """What is kept of a reservation: amount (1e-9 USD, as text), the balances it is held on, the caller's payload.

    Without a payload its request has been recorded, and only waits to be settled. The amount is written first: scripts
    change it where it stands.
    """

    amount: str
    holds: tuple[str, ...]
    payload: str = ""
    # Where the request counts as being in flight.
    flight: str = ""


class Hold(msgspec.Struct, frozen=True):
    """A reservation that was made: an amount in 1e-9 USD, held on some balances (their Redis keys) for a worker.

    `shard` has its note and balances, and gets its record. `key_limit_nanos` is the limit of the key that one of the
    balances is of.
    """

    id: str
    worker: str
    amount_nanos: int
    balances: tuple[str, ...]
    flight: str
    key_limit_nanos: int | None = None
    shard: int = 0


class SettledHold(msgspec.Struct, frozen=True):
    """A reservation once the cost is known: its note from now on, and what each of its balances holds (1e-9 USD)."""

    hold: Hold
    note: bytes
    stays: tuple[int, ...]


class ExtensionOutcome(StrEnum):
    """What came of asking for more: it is held, not covered by what is left, or there is no reservation any more."""

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
    """Hold more: all that is wanted, or as much of it as leaves room for others, but no less than the least.

    May be repeated with the same hold. One atomic round trip. Raises RedisError; then nobody knows whether it was done.
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
    """Return what stays of a reservation once it is known what its request is charged, until that has been done."""
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

"""Lua functions of the limits: a rate limit's token bucket, requests in flight, a balance.

They hold whatever the store's clock does: a moment kept from before it was set back would lock out for as long as it
was set back by. Knows Lua. Must never know what is admitted.
"""

from __future__ import annotations

from apps.billing.balances import EPOCH
from apps.kernel.store_keys import lua_key

LIMITS_LUA = f"""
    -- When a bucket of a minute's requests, kept under a name, will be full again; never later than an empty one would.
    local function bucket_of(name, now)
      local full = tonumber(redis.call('GET', name) or '0')
      if full <= now + 60 then return math.max(full, now) end
      -- Written down: a refusal writes nothing, and the next request would find it as it was.
      redis.call('SET', name, string.format('%.6f', now + 60), 'EX', 61)
      return now + 60
    end

    -- Whether so many are in flight; no lease ends later than one of so many seconds that begins now.
    local function crowded(name, now, most, lease)
      redis.call('ZREMRANGEBYSCORE', name, '-inf', now)
      if redis.call('ZCARD', name) < most then return false end
      local late = redis.call('ZRANGEBYSCORE', name, '(' .. string.format('%.6f', now + lease), '+inf')
      for _, one in ipairs(late) do redis.call('ZADD', name, now + lease, one) end
      return true
    end

    -- A balance's amount, nil when there is no copy, and what is held; a copy of another epoch of the ledger is none.
    local function balance(name)
      local b = redis.call('HMGET', name, 'amount', 'held', 'epoch')
      if not b[1] or b[3] ~= redis.call('GET', {lua_key(EPOCH)}) then return nil end
      return tonumber(b[1]), tonumber(b[2] or '0')
    end
"""

"""Lua functions for limits: a rate limit's token bucket, requests in flight, a balance.

They tolerate a store clock that is set back: stored times from before are capped.
"""

from __future__ import annotations

from apps.billing.balances import EPOCH
from apps.kernel.valkey.store_keys import lua_key

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
    local function balance(name)
      local b = redis.call('HMGET', name, 'amount', 'held', 'epoch')
      if not b[1] or b[3] ~= redis.call('GET', {lua_key(EPOCH)}) then return nil end
      return tonumber(b[1]), tonumber(b[2] or '0')
    end
"""

"""Rate limiter of sign-ins and other attempts: a sliding window for each address, and for each account and address.

An attacker who guesses at an account locks out only their own address; the owner signs in from another. Guesses from
many addresses share a much wider limit per account, which addresses of the owner's earlier sign-ins do not have.
"""

from __future__ import annotations

import hmac
import time
from dataclasses import dataclass

import structlog
from django.conf import settings
from redis.exceptions import RedisError

from apps.kernel.errors import RateLimited
from apps.kernel.ids import new_id
from apps.kernel.valkey.redis import LuaScript, client, tagged_key

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AttemptLimit:
    """At most `count` attempts in any `seconds`."""

    name: str
    count: int
    seconds: int = 60


SIGN_IN_PER_ACCOUNT_AND_ADDRESS = AttemptLimit("sign-in:account-and-address", 10)
SIGN_IN_PER_ACCOUNT = AttemptLimit("sign-in:account", 200, 3_600)
SIGN_IN_PER_ADDRESS = AttemptLimit("sign-in:address", 60)
SIGN_UP_PER_ACCOUNT = AttemptLimit("sign-up:account", 5)
SIGN_UP_PER_ADDRESS = AttemptLimit("sign-up:address", 10)

# Codes have six digits, three of them are good at a time, and who tries them knows the password already: a hundred
# tries a day find one with a chance of 0.03 % a day. A source is an address, or a session of the user's own.
CODE_PER_SOURCE = AttemptLimit("code:source", 10, 600)
CODE_PER_SOURCE_A_DAY = AttemptLimit("code:source-a-day", 100, 86_400)
# All addresses together that the user never signed in from.
CODE_FROM_STRANGERS_A_DAY = AttemptLimit("code:strangers-a-day", 100, 86_400)
# Recovery codes have 49 bits.
RECOVERY_CODE_PER_SOURCE = AttemptLimit("recovery-code:source", 10, 600)
PASSWORD_PER_SESSION = AttemptLimit("password:session", 10, 600)
PASSKEY_PER_ADDRESS = AttemptLimit("passkey:address", 60)
PASSKEY_PER_USER = AttemptLimit("passkey:user", 60, 600)
VERIFY_PER_ADDRESS = AttemptLimit("verify-email:address", 60)
RESET_PER_ADDRESS = AttemptLimit("password-reset:address", 20)
# E-mails that can be requested without signing in, by address: confirmation, password reset, sign-up.
MESSAGES_PER_EMAIL = AttemptLimit("messages:email", 5, 3_600)
MESSAGES_PER_USER = AttemptLimit("verification-email:user", 5, 3_600)
INVITATIONS_PER_ORGANIZATION = AttemptLimit("invitation:organization", 50, 3_600)
INVITATIONS_PER_ACCOUNT = AttemptLimit("invitation:account", 10, 3_600)
# Seconds for which an account's sign-in addresses are remembered, and how many of them.
KNOWN_FOR, MAX_KNOWN = 30 * 24 * 3_600, 20

# Returns the milliseconds to wait; 0 when every rate allows the try, which then counts against all of them.
_TRY = LuaScript(
    """
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local wait = 0
    for i, key in ipairs(KEYS) do
      local count, window = tonumber(ARGV[i * 2]), tonumber(ARGV[i * 2 + 1])
      redis.call('ZREMRANGEBYSCORE', key, '-inf', now - window)
      -- Tries of the future: the clock was set back since. They count from now on, and not for as long as that.
      for _, one in ipairs(redis.call('ZRANGEBYSCORE', key, '(' .. string.format('%.0f', now), '+inf')) do
        redis.call('ZADD', key, now, one)
      end
      if redis.call('ZCARD', key) >= count then
        local oldest = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
        wait = math.max(wait, oldest[2] + window - now)
      end
    end
    if wait == 0 then
      for i, key in ipairs(KEYS) do
        redis.call('ZADD', key, now, ARGV[1])
        redis.call('PEXPIRE', key, ARGV[i * 2 + 1])
      end
    end
    return wait
    """
)


def count_sign_in(account: str, address: str) -> None:
    """Count a sign-in attempt, before the password is checked. Raises RateLimited."""
    claims = [(SIGN_IN_PER_ADDRESS, address), (SIGN_IN_PER_ACCOUNT_AND_ADDRESS, f"{address}\n{account}")]
    if not is_known(account, address):
        claims.append((SIGN_IN_PER_ACCOUNT, account))
    count_attempt(*claims)


def count_code(user: str, source: str, *, is_known: bool) -> None:
    """Count an attempt with an app's code from an address or in a session. Raises RateLimited.

    A stranger with the password exhausts only the limit of unknown addresses: the user can still sign in from addresses
    that they used before (`is_known`), in their sessions, and with passkeys and recovery codes.
    """
    one = f"{user}\n{source}"
    claims = [(CODE_PER_SOURCE, one), (CODE_PER_SOURCE_A_DAY, one)]
    if not is_known:
        claims.append((CODE_FROM_STRANGERS_A_DAY, user))
    count_attempt(*claims)


def count_recovery_code(user: str, source: str) -> None:
    """Count an attempt with a recovery code from an address or in a session. Raises RateLimited."""
    count_attempt((RECOVERY_CODE_PER_SOURCE, f"{user}\n{source}"))


def remember_address(account: str, address: str) -> None:
    """Remember that the account's owner signed in from the address."""
    key = _known_key(account)
    try:
        pipe = client().pipeline(transaction=False)
        pipe.zadd(key, {_digest(address): time.time()})
        pipe.zremrangebyrank(key, 0, -MAX_KNOWN - 1)
        pipe.expire(key, KNOWN_FOR)
        pipe.execute()
    except RedisError as error:
        log.warning("throttle.not_remembered", error=type(error).__name__)


def forget_addresses(account: str) -> None:
    """Forget the account's sign-in addresses: another person may have known the credentials until now."""
    try:
        client().delete(_known_key(account))
    except RedisError as error:
        log.warning("throttle.not_forgotten", error=type(error).__name__)


def is_known(account: str, address: str) -> bool:
    """Return whether the account's owner signed in from the address recently; False if the store does not answer."""
    try:
        since = client().zscore(_known_key(account), _digest(address))
    except RedisError:
        return False
    return since is not None and float(since) > time.time() - KNOWN_FOR


def _known_key(account: str) -> str:
    return f"signed-in-from:{_digest(account)}"


def _digest(subject: str) -> str:
    return hmac.digest(settings.SECRET_KEY.encode(), subject.encode("utf-8", "surrogatepass"), "sha256").hex()


def count_attempt(*claims: tuple[AttemptLimit, str]) -> None:
    """Count an attempt against each limit. Raises RateLimited; a refused attempt is not counted.

    Without Redis nothing is counted, and users can still sign in.
    """
    keys = [tagged_key("attempts", f"throttle:{rate.name}:{_digest(subject)}") for rate, subject in claims]
    bounds = [number for rate, _ in claims for number in (rate.count, rate.seconds * 1000)]
    try:
        wait_ms = int(_TRY(keys, [str(new_id()), *bounds]))
    except RedisError as error:
        log.warning("throttle.not_counted", error=type(error).__name__)
        return
    if wait_ms:
        raise RateLimited("Too many attempts; try again later", retry_after=wait_ms / 1000)

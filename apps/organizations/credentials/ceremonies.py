"""Challenges for authenticators: stored in Valkey for five minutes, usable once, for one purpose of one user.

Reading a challenge deletes it, whether the answer is valid or not.
"""

from __future__ import annotations

import hmac
import json
import secrets
from base64 import b64decode, b64encode
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Final

import structlog
from redis.exceptions import RedisError

from apps.kernel.errors import InvalidRequest, Overloaded
from apps.kernel.valkey.redis import client
from apps.organizations.credentials.credential_state import state_of
from apps.organizations.models import User

log = structlog.get_logger(__name__)

LASTS: Final = 300
# Maximum characters of a ceremony's id; real ones are shorter.
MAX_ID: Final = 64
_CHALLENGE_BYTES: Final = 32


class Purpose(StrEnum):
    """The purpose of a challenge; an answer is valid for its purpose only."""

    REGISTER = "register"
    SIGN_IN = "sign-in"
    PROVE = "prove"


@dataclass(frozen=True, slots=True)
class Ceremony:
    """A challenge and the secret id of its ceremony."""

    id: str
    challenge: bytes


@dataclass(frozen=True, slots=True)
class Holder:
    """The owner of a ceremony: a user in one session, with their current credentials."""

    user: User
    session: str

    def binding(self) -> str:
        """Return the value that binds a ceremony or proof to the user's current credentials."""
        return f"{self.user.pk}:{self.session}:{state_of(self.user)}"


def begin(purpose: Purpose, holder: Holder | None = None) -> Ceremony:
    """Create a challenge. Raises Overloaded if it cannot be stored."""
    ceremony = Ceremony(secrets.token_urlsafe(32), secrets.token_bytes(_CHALLENGE_BYTES))
    kept = json.dumps([purpose, holder.binding() if holder else "", b64encode(ceremony.challenge).decode()])
    try:
        client().set(_key(ceremony.id), kept, ex=LASTS)
    except RedisError as error:
        raise _unavailable(error) from error
    return ceremony


def take(identifier: str, purpose: Purpose, holder: Holder | None = None) -> bytes:
    """Return a ceremony's challenge and delete it.

    Raises InvalidRequest if it was used, has expired, was begun with other credentials, or belongs to another purpose
    or user; Overloaded if the store does not answer.
    """
    try:
        kept = client().getdel(_key(identifier))
    except RedisError as error:
        raise _unavailable(error) from error
    if isinstance(kept, str):
        its_purpose, its_holder, challenge = json.loads(kept)
        if its_purpose == purpose and hmac.compare_digest(its_holder, holder.binding() if holder else ""):
            return b64decode(challenge)
    raise InvalidRequest(
        "This ceremony was used, has expired, or belongs to another session: start again",
        code="invalid_ceremony",
        param="ceremonyId",
    )


def _key(identifier: str) -> str:
    return f"passkey-ceremony:{sha256(identifier.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _unavailable(error: RedisError) -> Overloaded:
    log.warning("ceremony.store_unavailable", error=type(error).__name__)
    return Overloaded("Passkeys are not available right now; try again", code="passkeys_unavailable")

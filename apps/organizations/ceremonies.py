"""Challenges for authenticators: drawn here, kept here for five minutes, good once, and for one purpose of one person.

Knows Valkey. A challenge that is asked for is gone, whatever comes of it. Must never know a credential.
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
from apps.kernel.redis import client
from apps.organizations.credential_state import state_of
from apps.organizations.models import User

log = structlog.get_logger(__name__)

LASTS: Final = 300
# Characters of what names a ceremony, and more than any has.
MAX_ID: Final = 64
_CHALLENGE_BYTES: Final = 32


class Purpose(StrEnum):
    """What a challenge is for: the answer to one of another purpose is none."""

    REGISTER = "register"
    SIGN_IN = "sign-in"
    PROVE = "prove"


@dataclass(frozen=True, slots=True)
class Ceremony:
    """A challenge, and the secret name under which its answer is brought."""

    id: str
    challenge: bytes


@dataclass(frozen=True, slots=True)
class Holder:
    """Whose a ceremony is: a user in one session of theirs, with the credentials that they have now."""

    user: User
    session: str

    def binding(self) -> str:
        """Return what a ceremony or a proof is kept with: once the user's credentials change it is another's."""
        return f"{self.user.pk}:{self.session}:{state_of(self.user)}"


def begin(purpose: Purpose, holder: Holder | None = None) -> Ceremony:
    """Draw a challenge. Raises Overloaded when it cannot be kept."""
    ceremony = Ceremony(secrets.token_urlsafe(32), secrets.token_bytes(_CHALLENGE_BYTES))
    kept = json.dumps([purpose, holder.binding() if holder else "", b64encode(ceremony.challenge).decode()])
    try:
        client().set(_key(ceremony.id), kept, ex=LASTS)
    except RedisError as error:
        raise _unavailable(error) from error
    return ceremony


def take(identifier: str, purpose: Purpose, holder: Holder | None = None) -> bytes:
    """Return a ceremony's challenge, which nobody gets again.

    Raises InvalidRequest for one that was used, is too old, was begun with other credentials, or is another purpose's
    or another user's; Overloaded when the store does not answer.
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
        "This ceremony was used, is too old, or is another: begin again", code="invalid_ceremony", param="ceremonyId"
    )


def _key(identifier: str) -> str:
    return f"passkey-ceremony:{sha256(identifier.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _unavailable(error: RedisError) -> Overloaded:
    log.warning("ceremony.store_unavailable", error=type(error).__name__)
    return Overloaded("Passkeys cannot be used just now; try again", code="passkeys_unavailable")

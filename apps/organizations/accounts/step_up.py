"""Proof of identity: for signing in, and again for changing sign-in methods, which a stolen session must not do.

A proof is a passkey, or the password with the second factor if one is on.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.utils import timezone

from apps.kernel.errors import Forbidden, InvalidRequest, Unauthenticated
from apps.organizations.credentials import attempt_rate_limiter, passkeys, passwords, two_factor
from apps.organizations.credentials.ceremonies import Holder
from apps.organizations.credentials.passkeys import Answered
from apps.organizations.models import User

# How long a sign-in counts as proof for irreversible actions.
RECENT: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Proof:
    """A user's proof of identity; a passkey is enough."""

    password: str | None = None
    code: str | None = None
    passkey: Answered | None = None


def require(holder: Holder, proof: Proof) -> None:
    """Use up a proof. Raises Unauthenticated if it is wrong, InvalidRequest if missing, RateLimited after many."""
    user = holder.user
    if proof.passkey is not None:
        attempt_rate_limiter.count_attempt((attempt_rate_limiter.PASSKEY_PER_USER, str(user.pk)))
        passkeys.prove(holder, proof.passkey)
        return
    if proof.password is None:
        raise InvalidRequest("Send your `password`, or a `passkey`", code="proof_required", param="password")
    attempt_rate_limiter.count_attempt((attempt_rate_limiter.PASSWORD_PER_SESSION, f"{user.pk}\n{holder.session}"))
    if not passwords.matches(proof.password, user.password):
        raise Unauthenticated("Wrong password", code="wrong_password", param="password")
    two_factor.require(user=user, code=proof.code, source=holder.session, is_known=True)


def is_recent(session: Any) -> bool:
    """Return whether the session began with a sign-in in the last ten minutes."""
    return bool(timezone.now() - session.created < RECENT)


def require_recent(holder: Holder, session: Any, proof: Proof) -> None:
    """Require a recent sign-in or a proof for an irreversible action: an open session is not enough.

    Raises Forbidden without either, and as `require` does for a wrong proof.
    """
    if proof != Proof():
        require(holder, proof)
    elif not is_recent(session):
        raise Forbidden(
            "Your session is older than ten minutes: sign in again, or send proof of identity: your `password` "
            "(with a `code` if a second factor is on) or a `passkey`",
            code="proof_required",
        )


def sign_in_with_passkey(answered: Answered, *, address: str) -> User:
    """Return the user whose passkey answered a sign-in ceremony; the attempt is counted first, as with passwords.

    Raises as `passkeys.sign_in` does, and RateLimited.
    """
    attempt_rate_limiter.count_attempt((attempt_rate_limiter.SIGN_IN_PER_ADDRESS, address))
    user = passkeys.sign_in(answered)
    attempt_rate_limiter.remember_address(user.email, address)
    return user


def require_second_factor(*, user: User, code: str | None, passkey: Answered | None, address: str) -> None:
    """Require the second factor of a user with a correct password, if enabled.

    Raises as `two_factor.require` and `passkeys.sign_in` do.
    """
    if passkey is None:
        is_known = attempt_rate_limiter.is_known(user.email, address)
        two_factor.require(user=user, code=code, source=address, is_known=is_known)
    elif two_factor.is_on(user):
        attempt_rate_limiter.count_attempt((attempt_rate_limiter.PASSKEY_PER_ADDRESS, address))
        passkeys.sign_in(passkey, user=user)

"""Proof of who somebody is: to sign in, and again to change how they do, which a stolen session must not.

Knows what proves it: a passkey, or the password with the second factor where there is one. Must never know what the
proof is for.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.utils import timezone

from apps.kernel.errors import Forbidden, InvalidRequest, Unauthenticated
from apps.organizations import attempt_rate_limiter, passkeys, passwords, two_factor
from apps.organizations.ceremonies import Holder
from apps.organizations.models import User
from apps.organizations.passkeys import Answered

# How long signing in counts as proof for what cannot be undone.
RECENT: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Proof:
    """What somebody sends to prove who they are; a passkey does alone."""

    password: str | None = None
    code: str | None = None
    passkey: Answered | None = None


def require(holder: Holder, proof: Proof) -> None:
    """Use a proof up. Raises Unauthenticated unless it is good, InvalidRequest without one, RateLimited after many."""
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
    """Tell whether the user signed in no longer than ten minutes ago to begin a session."""
    return bool(timezone.now() - session.created < RECENT)


def require_recent(holder: Holder, session: Any, proof: Proof) -> None:
    """See that who destroys something signed in of late, or proves who they are: a session left open does not do.

    Raises Forbidden without either, and as `require` does for a proof that is not good.
    """
    if proof != Proof():
        require(holder, proof)
    elif not is_recent(session):
        raise Forbidden(
            "This needs a session that is younger than ten minutes, or proof of who you are: sign in again, or send "
            "your `password` (with a `code` where a second factor is on) or a `passkey` in the body",
            code="proof_required",
        )


def sign_in_with_passkey(answered: Answered, *, address: str) -> User:
    """Return whose passkey answered, to a ceremony of signing in; the try is counted first, as one with a password is.

    Raises as `passkeys.sign_in` does, and RateLimited.
    """
    attempt_rate_limiter.count_attempt((attempt_rate_limiter.SIGN_IN_PER_ADDRESS, address))
    user = passkeys.sign_in(answered)
    attempt_rate_limiter.remember_address(user.email, address)
    return user


def require_second_factor(*, user: User, code: str | None, passkey: Answered | None, address: str) -> None:
    """See that somebody whose password was right has their second factor too, where they have one.

    Raises as `two_factor.require` and `passkeys.sign_in` do.
    """
    if passkey is None:
        is_known = attempt_rate_limiter.is_known(user.email, address)
        two_factor.require(user=user, code=code, source=address, is_known=is_known)
    elif two_factor.is_on(user):
        attempt_rate_limiter.count_attempt((attempt_rate_limiter.PASSKEY_PER_ADDRESS, address))
        passkeys.sign_in(passkey, user=user)

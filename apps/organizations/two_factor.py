"""Two-factor authentication (TOTP, RFC 6238): a second thing, besides the password, that signing in may ask for.

Knows secrets of authenticator apps, encrypted, and digests of recovery codes. A code is good once. Must never log or
show either but when they are made.
"""

from __future__ import annotations

import hmac
import os
import secrets
import time
from base64 import b32encode
from dataclasses import dataclass
from typing import Final

import structlog
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor import InvalidToken
from cryptography.hazmat.primitives.twofactor.totp import TOTP
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from apps.kernel.encryption import UnreadableSecretError, decrypt, encrypt
from apps.kernel.errors import InvalidRequest, Unauthenticated
from apps.organizations import attempt_rate_limiter, passwords
from apps.organizations.models import TwoFactor, User

log = structlog.get_logger(__name__)

ISSUER: Final = "Model gateway"
DIGITS, STEP = 6, 30
# Steps before and after now whose codes are taken: clocks differ.
_DRIFT: Final = 1
RECOVERY_CODES: Final = 10
_SECRET_BYTES: Final = 20
# No letters that are taken for others.
_ALPHABET: Final = "abcdefghjkmnpqrstuvwxyz23456789"
_HALF: Final = 5


@dataclass(frozen=True, slots=True)
class Enrolment:
    """What an authenticator app is given, once: the secret in base 32, and the same as the address of a QR code."""

    secret: str
    url: str


def begin(*, user: User, password: str) -> Enrolment:
    """Return a new secret for the user's app; it counts once `confirm` has seen a code of it.

    Raises Unauthenticated for a wrong password, InvalidRequest (409) where a second factor is asked for already.
    """
    _require_password(user, password)
    secret = os.urandom(_SECRET_BYTES)
    with transaction.atomic():
        row = _locked(user)
        if row is not None and row.confirmed_at is not None:
            raise InvalidRequest("Two-factor authentication is on already", status=409, code="already_on")
        TwoFactor.objects.update_or_create(
            user=user, defaults={"sealed_secret": encrypt(secret), "last_step": 0, "recovery_digests": []}
        )
    return Enrolment(b32encode(secret).decode(), _app(secret).get_provisioning_uri(user.email, ISSUER))


@transaction.atomic
def confirm(*, user: User, code: str) -> list[str]:
    """Ask for a second factor from now on; return the recovery codes, which cannot be had again.

    Raises InvalidRequest for a code that is not the app's, or where nothing was begun.
    """
    row = _locked(user)
    if row is None or row.confirmed_at is not None:
        raise InvalidRequest("Begin with POST /auth/two-factor", code="not_begun")
    if not _uses_app(row, code):
        raise InvalidRequest("This is not the app's present code", code="wrong_code", param="code")
    codes = [_new_recovery_code() for _ in range(RECOVERY_CODES)]
    row.recovery_digests = [_digest(user, one) for one in codes]
    row.confirmed_at = timezone.now()
    row.save(update_fields=["recovery_digests", "confirmed_at", "last_step"])
    return codes


def disable(*, user: User, password: str, code: str) -> None:
    """Ask for the password alone from now on. Raises Unauthenticated unless both are right."""
    _require_password(user, password)
    require(user=user, code=code)
    TwoFactor.objects.filter(user=user).delete()


def rotate() -> int:
    """Encrypt every secret with the newest encryption key, so that older ones can be taken away; return how many."""
    count = 0
    for identifier in TwoFactor.objects.values_list("pk", flat=True):
        with transaction.atomic():
            row = TwoFactor.objects.select_for_update(no_key=True).filter(pk=identifier).first()
            if row is None:
                continue
            try:
                row.sealed_secret = encrypt(decrypt(bytes(row.sealed_secret)))
            except UnreadableSecretError:
                log.error("two_factor.unreadable", user=str(row.user_id))
                continue
            row.save(update_fields=["sealed_secret"])
            count += 1
    return count


def is_on(user: User) -> bool:
    """Return whether signing in as the user takes a second factor."""
    return TwoFactor.objects.filter(user=user).exclude(confirmed_at=None).exists()


def require(*, user: User, code: str | None) -> None:
    """Use a code up, where one is asked for. Raises Unauthenticated without a good one, RateLimited after too many."""
    if not is_on(user):
        return
    if not code:
        raise Unauthenticated(
            "Send the `code` of your authenticator app, or a recovery code", code="two_factor_required", param="code"
        )
    attempt_rate_limiter.count_attempt((attempt_rate_limiter.TWO_FACTOR_PER_ACCOUNT, str(user.id)))
    with transaction.atomic():
        row = _locked(user)
        # Another request may have turned it off meanwhile.
        good = row is None or _uses_app(row, code) or _uses_recovery_code(row, code)
        if row is not None and good:
            row.save(update_fields=["last_step", "recovery_digests"])
    if not good:
        raise Unauthenticated("Wrong code", code="wrong_code", param="code")


def _require_password(user: User, password: str) -> None:
    attempt_rate_limiter.count_attempt((attempt_rate_limiter.PASSWORD_PER_USER, str(user.id)))
    if not passwords.matches(password, user.password):
        raise Unauthenticated("Wrong password", code="wrong_password", param="password")


def _locked(user: User) -> TwoFactor | None:
    return TwoFactor.objects.select_for_update(no_key=True).filter(user=user).first()


def _app(secret: bytes) -> TOTP:
    return TOTP(secret, DIGITS, SHA1(), STEP)  # noqa: S303 - what authenticator apps speak; HMAC needs no more


def _uses_app(row: TwoFactor, code: str) -> bool:
    """Return whether a code is one of the app's that was not used before; then no earlier one is good any more."""
    try:
        app, now = _app(decrypt(bytes(row.sealed_secret))), int(time.time()) // STEP
    except UnreadableSecretError:
        # Recovery codes still let the user in.
        log.error("two_factor.unreadable", user=str(row.user_id))
        return False
    for step in range(now - _DRIFT, now + _DRIFT + 1):
        if step > row.last_step and _is_of(app, step, code):
            row.last_step = step
            return True
    return False


def _is_of(app: TOTP, step: int, code: str) -> bool:
    try:
        app.verify(code.strip().encode(), step * STEP)
    except InvalidToken:
        return False
    return True


def _uses_recovery_code(row: TwoFactor, code: str) -> bool:
    """Return whether this is one of the recovery codes; it is none any more."""
    given = _digest(row.user, code)
    left = [one for one in row.recovery_digests if not hmac.compare_digest(one, given)]
    found = len(left) < len(row.recovery_digests)
    row.recovery_digests = left
    return found


def _new_recovery_code() -> str:
    letters = "".join(secrets.choice(_ALPHABET) for _ in range(2 * _HALF))
    return f"{letters[:_HALF]}-{letters[_HALF:]}"


def _digest(user: User, code: str) -> str:
    """Return what is kept of a recovery code, some 49 bits: nobody without the pepper can try them all."""
    plain = code.strip().lower().replace("-", "")
    return hmac.digest(settings.API_KEY_PEPPER.encode(), f"{user.pk}:{plain}".encode(), "sha256").hex()

"""Two-factor authentication (TOTP, RFC 6238) with recovery codes.

Secrets of authenticator apps are encrypted, recovery codes are stored as digests and also cover passkeys. A code works
once. Both are shown only when created and never logged. Callers of changes have verified the user's identity
(`step_up.py`).
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
import time
from base64 import b32encode
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import structlog
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor import InvalidToken
from cryptography.hazmat.primitives.twofactor.totp import TOTP
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from apps.kernel.errors import InvalidRequest, Unauthenticated
from apps.kernel.secrets.encryption import UnreadableSecretError, decrypt, encrypt
from apps.organizations.credentials import attempt_rate_limiter
from apps.organizations.credentials.credential_state import forget_begun
from apps.organizations.journal import audit
from apps.organizations.models import TwoFactor, User

log = structlog.get_logger(__name__)

ISSUER: Final = "Model gateway"
DIGITS, STEP = 6, 30
_APP_CODE: Final = re.compile(rf"[0-9]{{{DIGITS}}}")
# Time between receiving the secret and confirming the first code.
BEGUN_LASTS: Final = timedelta(hours=1)
# Accepted time steps before and after now: clocks differ.
_DRIFT: Final = 1
RECOVERY_CODES: Final = 10
_SECRET_BYTES: Final = 20
# Without letters that look alike.
_ALPHABET: Final = "abcdefghjkmnpqrstuvwxyz23456789"
_HALF: Final = 5


@dataclass(frozen=True, slots=True)
class Enrolment:
    """The setup of an authenticator app, shown once: the secret in base 32, and the same as a QR code's address."""

    secret: str
    url: str


def require_no_app(user: User) -> None:
    """Raise InvalidRequest (409) if the user already has an authenticator app."""
    if has_app(user):
        raise _already_on()


@transaction.atomic
def begin(*, user: User) -> Enrolment:
    """Return a new secret for the user's app; it is in use once `confirm` has seen a code within `BEGUN_LASTS`.

    Raises InvalidRequest (409) if an app is already in use.
    """
    secret = os.urandom(_SECRET_BYTES)
    row = _locked(user)
    if row is not None and row.confirmed_at is not None:
        raise _already_on()
    # Recovery codes of a user with passkeys stay.
    fields = {"sealed_secret": encrypt(secret), "last_step": 0, "created_at": timezone.now()}
    TwoFactor.objects.update_or_create(user=user, defaults=fields)
    return Enrolment(b32encode(secret).decode(), _app(secret).get_provisioning_uri(user.email, ISSUER))


@transaction.atomic
def confirm(*, user: User, code: str, source: str) -> list[str]:
    """Turn the second factor on; return the recovery codes, which are shown only once and replace earlier ones.

    Raises InvalidRequest for a wrong code or without a pending setup; RateLimited after too many.
    """
    attempt_rate_limiter.count_code(str(user.id), source, is_known=True)
    row = _locked(user)
    is_begun = row is not None and row.confirmed_at is None and bool(row.sealed_secret)
    if row is None or not is_begun or row.created_at < timezone.now() - BEGUN_LASTS:
        raise InvalidRequest("Begin with POST /auth/two-factor", code="not_begun")
    if not _uses_app(row, code):
        raise InvalidRequest("This is not the app's current code", code="wrong_code", param="code")
    row.confirmed_at = timezone.now()
    row.save(update_fields=["confirmed_at", "last_step"])
    forget_begun(user)
    audit.record_of_account("two_factor.enable", user=user, resource=row)
    log.info("two_factor.enabled", user=str(user.pk))
    return renew_recovery_codes(user)


@transaction.atomic
def disable(*, user: User) -> None:
    """Turn the authenticator app off; without a passkey, the password alone signs in again."""
    row = _locked(user)
    if row is None:
        return
    if row.confirmed_at is not None:
        audit.record_of_account("two_factor.disable", user=user, resource=row)
        log.info("two_factor.disabled", user=str(user.pk))
    row.sealed_secret, row.last_step, row.confirmed_at = b"", 0, None
    row.save(update_fields=["sealed_secret", "last_step", "confirmed_at"])
    forget_begun(user)
    forget_if_off(user)


def renew_recovery_codes(user: User) -> list[str]:
    """Return new recovery codes, which are shown only once; earlier ones become invalid."""
    codes = [_new_recovery_code() for _ in range(RECOVERY_CODES)]
    digests = [_digest(user, one) for one in codes]
    TwoFactor.objects.update_or_create(user=user, defaults={"recovery_digests": digests})
    return codes


def forget_if_off(user: User) -> None:
    """Remove the recovery codes of a user without a second factor."""
    if not is_on(user):
        TwoFactor.objects.filter(user=user).delete()


def rotate() -> int:
    """Encrypt every secret with the newest encryption key, so that older keys can be removed; return how many."""
    count = 0
    for identifier in TwoFactor.objects.exclude(sealed_secret=b"").values_list("pk", flat=True):
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
    """Return whether signing in with a password requires a second factor."""
    return has_app(user) or user.passkeys.exists()


def has_app(user: User) -> bool:
    """Return whether the user has an authenticator app."""
    return TwoFactor.objects.filter(user=user).exclude(confirmed_at=None).exists()


def require(*, user: User, code: str | None, source: str, is_known: bool) -> None:
    """Use up a code, if one is required. Raises Unauthenticated for a missing or wrong one, RateLimited after too many.

    `source` is the session or client address of the code; `is_known` is true if the user has signed in there before.
    """
    if not is_on(user):
        return
    if not code:
        raise Unauthenticated(_what_is_missing(user), code="two_factor_required", param="code")
    if _APP_CODE.fullmatch(code.strip()):
        attempt_rate_limiter.count_code(str(user.id), source, is_known=is_known)
    else:
        attempt_rate_limiter.count_recovery_code(str(user.id), source)
    with transaction.atomic():
        row = _locked(user)
        if row is None:
            # Another request may have turned it off meanwhile.
            good = not is_on(user)
        else:
            is_of_app = _APP_CODE.fullmatch(code.strip()) is not None
            good = (
                row.confirmed_at is not None and _uses_app(row, code) if is_of_app else _uses_recovery_code(row, code)
            )
            if good:
                row.save(update_fields=["last_step", "recovery_digests"])
    if not good:
        raise Unauthenticated("Wrong code", code="wrong_code", param="code")


def _already_on() -> InvalidRequest:
    return InvalidRequest("Two-factor authentication is already on", status=409, code="already_on")


def _what_is_missing(user: User) -> str:
    if not has_app(user):
        return "Send a `passkey`, or a recovery code as `code`"
    return "Send the `code` of your authenticator app, or a recovery code" + (
        ", or a `passkey`" if user.passkeys.exists() else ""
    )


def _locked(user: User) -> TwoFactor | None:
    return TwoFactor.objects.select_for_update(no_key=True).filter(user=user).first()


def _app(secret: bytes) -> TOTP:
    return TOTP(secret, DIGITS, SHA1(), STEP)  # noqa: S303 - what authenticator apps speak; HMAC needs no more


def _uses_app(row: TwoFactor, code: str) -> bool:
    """Return whether a code is a new one of the app's; it and earlier ones then become invalid."""
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
    """Return whether this is a recovery code, and use it up."""
    given = _digest(row.user, code)
    left = [one for one in row.recovery_digests if not hmac.compare_digest(one, given)]
    found = len(left) < len(row.recovery_digests)
    row.recovery_digests = left
    return found


def _new_recovery_code() -> str:
    letters = "".join(secrets.choice(_ALPHABET) for _ in range(2 * _HALF))
    return f"{letters[:_HALF]}-{letters[_HALF:]}"


def _digest(user: User, code: str) -> str:
    """Return the stored digest of a recovery code of 49 bits; the pepper prevents brute force."""
    plain = code.strip().lower().replace("-", "")
    return hmac.digest(settings.API_KEY_PEPPER.encode(), f"{user.pk}:{plain}".encode(), "sha256").hex()

"""An authenticator app for users of tests: one secret for all of them."""

from __future__ import annotations

import time

from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP
from django.utils import timezone

from apps.kernel.secrets.encryption import encrypt
from apps.organizations.models import TwoFactor, User

SECRET = b"a secret of 20 bytes"


def enrol(user: User, *, confirmed: bool = True) -> TwoFactor:
    """Give the user the app."""
    return TwoFactor.objects.create(
        user=user, sealed_secret=encrypt(SECRET), confirmed_at=timezone.now() if confirmed else None
    )


def app_code(steps: int = 0, secret: bytes = SECRET) -> str:
    """Return the app's code, now or so many steps of 30 seconds later."""
    return TOTP(secret, 6, SHA1(), 30).generate(time.time() + 30 * steps).decode()  # type: ignore[arg-type]  # as it is

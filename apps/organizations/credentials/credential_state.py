"""Credential state: a digest that changes with every credential of a user, and cleanup after each change.

A process that spans several requests carries the digest and is refused once the state has changed.
"""

from __future__ import annotations

import json

from django.utils.crypto import salted_hmac

from apps.organizations.credentials import attempt_rate_limiter
from apps.organizations.models import TwoFactor, User

_SALT = "organizations.credential-state"


def state_of(user: User) -> str:
    """Return the digest of a user's address, password, authenticator app and passkeys: 64 hexadecimal digits."""
    apps = TwoFactor.objects.filter(user=user).exclude(confirmed_at=None).values_list("confirmed_at", flat=True)
    passkeys = user.passkeys.order_by("id").values_list("id", flat=True)
    said = [user.email, user.password, [str(one) for one in apps], [str(one) for one in passkeys]]
    return salted_hmac(_SALT, json.dumps(said), algorithm="sha256").hexdigest()


def forget_begun(user: User) -> None:
    """Drop a user's unfinished processes, in the transaction that changes a credential.

    These are a pending e-mail change, unsent e-mails, an unconfirmed authenticator app, and the addresses of earlier
    sign-ins.
    """
    user.wanted_email, user.email_change_wanted_at, user.password_reset_wanted_at = "", None, None
    User.objects.filter(pk=user.pk).update(wanted_email="", email_change_wanted_at=None, password_reset_wanted_at=None)
    begun = TwoFactor.objects.filter(user=user, confirmed_at=None)
    begun.filter(recovery_digests=[]).delete()
    # Recovery codes of a user with passkeys stay.
    begun.update(sealed_secret=b"", last_step=0)
    attempt_rate_limiter.forget_addresses(user.email)

"""Credential changes: what ends when a user gets another password, or is switched off.

Every path that changes a password calls one of these functions in its transaction. What ends with a second factor is in
`credential_state.py`; the table in docs/security.md has all of it.
"""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from apps.organizations import revocation
from apps.organizations.credential_state import forget_begun
from apps.organizations.models import Passkey, TwoFactor, User
from apps.organizations.sessions import end_browser_sessions, end_sessions


def password_changed(user: User) -> None:
    """End the sessions, pending changes and signed-in programs of a user who has another password.

    API keys stay: programs run with them. The operators' own sessions in the admin end because Django binds them to
    the password.
    """
    end_sessions(user)
    revocation.end_programs(user.pk)
    forget_begun(user)


def password_was_set(sender: type[User], instance: User, created: bool, **_: Any) -> None:
    """Do so for a password that Django has set: on the admin's own page, or by `manage.py changepassword`."""
    if not created and getattr(instance, "_password", None) is not None:
        password_changed(instance)


def access_switched_off(user: User) -> None:
    """End everything that lets a user in, for good: it does not come back when an operator switches the user on."""
    password_changed(user)
    end_browser_sessions(user)


def first_proof_of_mailbox(user: User) -> None:
    """Confirm a user's address, and remove everything that was there before its owner was proven.

    The person who signed up with the address may not be the owner of the mailbox: second factors, sessions, programs
    and API keys made until then are not theirs.
    """
    Passkey.objects.filter(user=user).delete()
    TwoFactor.objects.filter(user=user).delete()
    for organization_id in user.memberships.values_list("organization_id", flat=True):
        revocation.revoke(organization_id, user.pk)
    end_browser_sessions(user)
    user.email_verified_at, user.verification_wanted_at = timezone.now(), None
    user.save(update_fields=["email_verified_at", "verification_wanted_at", "updated_at"])

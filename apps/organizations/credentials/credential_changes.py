"""Credential changes: what ends when a user's password changes or the user is deactivated.

Every change of a password calls one of these functions in its transaction. `credential_state.py` handles second
factors; docs/security.md has the complete table.
"""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from apps.organizations import app_hooks
from apps.organizations.credentials.credential_state import forget_begun
from apps.organizations.credentials.sessions import end_browser_sessions, end_sessions
from apps.organizations.models import Passkey, TwoFactor, User


def password_changed(user: User) -> None:
    """End the sessions, pending changes and signed-in programs of a user whose password changed.

    API keys stay, because programs run with them. Django ends the operator's own admin sessions, which are bound to the
    password.
    """
    end_sessions(user)
    app_hooks.end_programs(user.pk)
    forget_begun(user)


def password_was_set(sender: type[User], instance: User, created: bool, **_: Any) -> None:
    """Do the same for a password set by Django: on the admin's page, or by `manage.py changepassword`."""
    if not created and getattr(instance, "_password", None) is not None:
        password_changed(instance)


def access_switched_off(user: User) -> None:
    """End all access of a user permanently: reactivating the user does not restore it."""
    password_changed(user)
    end_browser_sessions(user)


def first_proof_of_mailbox(user: User) -> None:
    """Confirm a user's address, and remove everything from before the owner was proven.

    The person who signed up with the address may not own the mailbox: second factors, sessions, programs and API keys
    created until then are not the owner's.
    """
    Passkey.objects.filter(user=user).delete()
    TwoFactor.objects.filter(user=user).delete()
    for organization_id in user.memberships.values_list("organization_id", flat=True):
        app_hooks.revoke(organization_id, user.pk)
    end_browser_sessions(user)
    user.email_verified_at, user.verification_wanted_at = timezone.now(), None
    user.save(update_fields=["email_verified_at", "verification_wanted_at", "updated_at"])

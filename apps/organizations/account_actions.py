"""What somebody who is signed in can do to their own account: another name, password or e-mail address.

Knows what ends with the old ones. Must never know HTTP, nor ask for proof of who it is: `step_up.py` does, beforehand.
"""

from __future__ import annotations

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.organizations import audit, passwords
from apps.organizations.credential_changes import password_changed
from apps.organizations.email_tokens import find_email_change
from apps.organizations.models import User


def rename(*, user: User, name: str) -> None:
    """Give a user another name."""
    user.name = name
    user.save(update_fields=["name", "updated_at"])


def change_password(*, user: User, password: str) -> None:
    """Give a user another password. Every session ends, the one that asks too, and so does what was pending."""
    stored = passwords.hash_of(password)
    with transaction.atomic():
        user.password = stored
        user.save(update_fields=["password", "updated_at"])
        password_changed(user)
        audit.record_of_account("password.change", user=user, resource=user)


def want_email_change(*, user: User, email: str) -> None:
    """Have a message sent to the address that a user wants; an address wanted before is none any more."""
    User.objects.filter(pk=user.pk).update(
        wanted_email=User.normalize_username(email), email_change_wanted_at=timezone.now()
    )


def change_email(*, token: str) -> bool:
    """Make the address that a token was sent to its user's; False when the token is not good, or the address is taken.

    Tokens sent to the old address, such as for another password, are no longer good.
    """
    try:
        with transaction.atomic():
            # Of two who bring the token at once, the second finds the address changed.
            user = find_email_change(token, lock=True)
            if user is None:
                return False
            before = user.email
            user.email, user.wanted_email, user.email_verified_at = user.wanted_email, "", timezone.now()
            user.save(update_fields=["email", "wanted_email", "email_verified_at", "updated_at"])
            with audit.acting(user):
                changes = {"changes": {"email": {"from": before, "to": user.email}}}
                audit.record_of_account("email.change", user=user, resource=user, details=changes)
    except IntegrityError:
        # Somebody signed up with it meanwhile. Who that is nobody is told.
        return False
    return True

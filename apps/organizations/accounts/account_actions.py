"""Changes to one's own account: name, password, e-mail address.

Callers have verified the user's identity (`step_up.py`).
"""

from __future__ import annotations

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.kernel.pages.languages import active_language
from apps.organizations.credentials import passwords
from apps.organizations.credentials.credential_changes import password_changed
from apps.organizations.credentials.email_tokens import find_email_change
from apps.organizations.journal import audit
from apps.organizations.models import User


def rename(*, user: User, name: str) -> None:
    """Rename a user."""
    user.name = name
    user.save(update_fields=["name", "updated_at"])


def choose_language(*, user: User, language: str) -> None:
    """Choose the language of a user's pages and e-mails; an empty one is the browser's."""
    user.language = language
    user.save(update_fields=["language", "updated_at"])


def note_language(user: User) -> None:
    """Note the language in which a user reads pages, for their e-mails; writes when it changes."""
    if user.page_language != active_language():
        user.page_language = active_language()
        User.objects.filter(pk=user.pk).update(page_language=user.page_language)


def change_password(*, user: User, password: str) -> None:
    """Change a user's password. Ends every session, also the current one, and all pending changes."""
    stored = passwords.hash_of(password)
    with transaction.atomic():
        user.password = stored
        user.save(update_fields=["password", "updated_at"])
        password_changed(user)
        audit.record_of_account("password.change", user=user, resource=user)


def want_email_change(*, user: User, email: str) -> None:
    """Send a confirmation link to the new address of a user; an earlier request is dropped."""
    User.objects.filter(pk=user.pk).update(
        wanted_email=User.normalize_username(email), email_change_wanted_at=timezone.now()
    )


def change_email(*, token: str) -> bool:
    """Set the address that a token was sent to; False if the token is invalid or the address is taken.

    Tokens sent to the old address, such as password resets, become invalid.
    """
    try:
        with transaction.atomic():
            # If a token is sent twice at once, the second request finds the address changed.
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
        # Another user signed up with the address meanwhile. Do not reveal it.
        return False
    return True

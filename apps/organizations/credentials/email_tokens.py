"""Signed e-mail tokens: presenting one proves access to the mailbox.

Tokens are not stored and never logged; each has one purpose, and the state of its row makes it valid only once.
"""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256
from urllib.parse import urlencode
from uuid import UUID

from django.conf import settings
from django.core import signing
from django.utils.crypto import constant_time_compare

from apps.kernel.ids import find_id
from apps.organizations.credentials.credential_state import state_of
from apps.organizations.models import Invitation, User

VERIFICATION_LASTS = timedelta(hours=24)
INVITATION_LASTS = timedelta(days=7)
RESET_LASTS = timedelta(hours=1)
# Maximum characters of a token.
MAX_TOKEN = 500
_VERIFY, _INVITE = "organizations.verify-email", "organizations.invitation"
_RESET, _CHANGE = "organizations.password-reset", "organizations.email-change"


def verification_token(user: User) -> str:
    """Return a token that confirms the user's address."""
    return signing.dumps([str(user.id), _fingerprint(user.email)], salt=_VERIFY)


def find_unverified(token: str) -> User | None:
    """Return the user whose address a token confirms; None if it is invalid, expired or used."""
    try:
        identifier, fingerprint = signing.loads(token, salt=_VERIFY, max_age=VERIFICATION_LASTS)
    except (signing.BadSignature, ValueError, TypeError):
        return None
    user = User.objects.filter(pk=identifier, is_active=True, email_verified_at=None).first()
    return user if user is not None and _fingerprint(user.email) == fingerprint else None


def reset_token(user: User) -> str:
    """Return a token that lets the reader of the user's mailbox set a new password; the next token ends it."""
    return signing.dumps([str(user.id), _fingerprint(f"{user.email} {user.password}")], salt=_RESET)


def find_user_to_reset(token: str, *, lock: bool = False) -> User | None:
    """Return the user whose password a token may change; None if it is invalid, expired or used.

    With `lock`, which needs a transaction, the user's row is locked until it ends.
    """
    try:
        identifier, fingerprint = signing.loads(token, salt=_RESET, max_age=RESET_LASTS)
    except (signing.BadSignature, ValueError, TypeError):
        return None
    users = User.objects.select_for_update(no_key=True) if lock else User.objects.all()
    user = users.filter(pk=identifier, is_active=True).first()
    good = user is not None and constant_time_compare(_fingerprint(f"{user.email} {user.password}"), fingerprint)
    return user if good else None


def email_change_token(user: User) -> str:
    """Return a token that changes the user's address to the requested one; it is sent there.

    It becomes invalid when the user's address, password or second factors change: an attacker may have known these.
    """
    return signing.dumps([str(user.id), _fingerprint(f"{state_of(user)} {user.wanted_email}")], salt=_CHANGE)


def find_email_change(token: str, *, lock: bool = False) -> User | None:
    """Return the user whose address a token changes.

    None if it is invalid, expired or used, if another address was requested, or if the credentials have changed.
    With `lock`, which needs a transaction, the user's row is locked until it ends.
    """
    try:
        identifier, fingerprint = signing.loads(token, salt=_CHANGE, max_age=VERIFICATION_LASTS)
    except (signing.BadSignature, ValueError, TypeError):
        return None
    users = User.objects.select_for_update(no_key=True) if lock else User.objects.all()
    user = users.filter(pk=identifier, is_active=True).exclude(wanted_email="").first()
    good = user is not None and constant_time_compare(
        _fingerprint(f"{state_of(user)} {user.wanted_email}"), fingerprint
    )
    return user if good else None


def invitation_token(invitation: Invitation) -> str:
    """Return a token that lets an invited person sign up."""
    return signing.dumps(str(invitation.id), salt=_INVITE)


def sign_up_link(invitation: Invitation) -> str:
    """Return the URL of the sign-up page for an invitation, with its token."""
    query = urlencode({"invitation": invitation_token(invitation), "email": invitation.email})
    return f"{settings.PUBLIC_URL}/app/sign-up?{query}"


def invitation_in(token: str) -> UUID | None:
    """Return the id of a token's invitation; None if it is invalid."""
    try:
        return find_id(str(signing.loads(token, salt=_INVITE)))
    except (signing.BadSignature, ValueError):
        return None


def _fingerprint(text: str) -> str:
    """Return a digest of text that must not be readable in a token."""
    return sha256(text.encode()).hexdigest()[:16]

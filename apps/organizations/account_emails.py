"""E-mail about accounts: confirm your address, choose another password, you are invited.

Knows the words. The rows say what is yet to be sent, until it is: a process that dies after sending and before
forgetting sends twice; none is lost. Must never hold up a request, nor write a token where it could be read by others
than who has the mailbox.
"""

from __future__ import annotations

from smtplib import SMTPException
from typing import Literal, TypeVar
from uuid import UUID

import structlog
from django.conf import settings
from django.core.mail import EmailMessage
from django.db.models import QuerySet
from django.utils import timezone

from apps.organizations.email_tokens import (
    email_change_token,
    invitation_token,
    reset_token,
    sign_up_link,
    verification_token,
)
from apps.organizations.invitations import waiting
from apps.organizations.models import Invitation, User

log = structlog.get_logger(__name__)
# Sent in one run, of each kind; and the row of each kind that was tried last.
_AT_ONCE = 200
_tried_last: dict[str, UUID] = {}
_Row = TypeVar("_Row", User, Invitation)
_CONSOLE = "django.core.mail.backends.console.EmailBackend"
_VERIFY = """Somebody, hopefully you, signed up at {place} with this e-mail address.

To confirm that it is yours, within 24 hours, open

    {place}/verify-email?token={token}

or send

    POST {place}/auth/verify-email
    {{"token": "{token}"}}

If it was not you, do not open the link: someone would have an account with your address. To have that account yourself,
choose another password at {place}/app/forgot-password, which removes everything that they left there.
"""
_SIGN_UP_TRIED = """Someone, hopefully you, tried to sign up at {place} with this e-mail address, which has an account
already. No other account was made, and yours is as it was.

If it was you, sign in at

    {place}/app/sign-in

or choose another password, within an hour, at

    {place}/reset-password?token={token}

If it was not you, there is nothing to do.
"""
_RESET = """Somebody, hopefully you, wants another password for the account of this e-mail address at {place}.

To choose one, within an hour, open

    {place}/reset-password?token={token}

or send

    POST {place}/auth/reset-password
    {{"token": "{token}", "password": "…"}}

If it was not you, there is nothing to do: the password stays as it is.
"""
_CHANGE = """Somebody, hopefully you, wants this to be the e-mail address of their account at {place}.

To confirm that it is yours, within 24 hours, open

    {place}/change-email?token={token}

or send

    POST {place}/auth/change-email/confirm
    {{"token": "{token}"}}

If it was not you, there is nothing to do.
"""
_CHANGE_ASKED = """The account of this e-mail address at {place} is to get another address: {wanted}.

It does once that address is confirmed. If it was not you who asked, choose another password now:
whoever did knows yours.
"""
_INVITED = """You are invited to {what} at {place}.

To sign up, within 7 days, open

    {link}

or send

    POST {place}/auth/sign-up/email
    {{"name": "…", "email": "{email}", "password": "…", "invitation": "{token}"}}
{member}
If you do not know why, there is nothing to do.
"""
_MEMBER = """
With an account there already, open

    {place}/app/invitations/{organization}/{identifier}

or sign in and send

    POST {place}/organization/{organization}/invitations/{identifier}/accept
"""


def delivery() -> Literal["sent", "logged", "kept"]:
    """Return what becomes of messages: they are sent; or written into the worker's log, or kept back, where nobody said
    how to send them."""
    if settings.EMAIL_BACKEND != _CONSOLE:
        return "sent"
    return "logged" if settings.DEVELOPMENT else "kept"


def send_pending_emails() -> int:
    """Send what is waiting; return how many messages. What cannot be sent stays."""
    if delivery() == "kept":
        # It would put tokens into a log. A warning at the start says how e-mail is set up.
        return 0
    sent = 0
    for user in _next("verification", User.objects.exclude(verification_wanted_at=None)):
        if user.email_verified_at is not None or _send("Confirm your e-mail address", _verification(user), user.email):
            wanted = user.verification_wanted_at
            User.objects.filter(pk=user.pk, verification_wanted_at=wanted).update(verification_wanted_at=None)
            sent += 1
    for user in _next("sign-up notice", User.objects.exclude(sign_up_tried_at=None)):
        if not user.is_active or _send("You have an account already", _sign_up_tried(user), user.email):
            tried = user.sign_up_tried_at
            User.objects.filter(pk=user.pk, sign_up_tried_at=tried).update(sign_up_tried_at=None)
            sent += 1
    for user in _next("password reset", User.objects.exclude(password_reset_wanted_at=None)):
        if not user.is_active or _send("Choose another password", _reset(user), user.email):
            asked = user.password_reset_wanted_at
            User.objects.filter(pk=user.pk, password_reset_wanted_at=asked).update(password_reset_wanted_at=None)
            sent += 1
    for user in _next("email change", User.objects.exclude(email_change_wanted_at=None)):
        if not user.is_active or _send_email_change(user):
            asked = user.email_change_wanted_at
            User.objects.filter(pk=user.pk, email_change_wanted_at=asked).update(email_change_wanted_at=None)
            sent += 1
    for invitation in _next("invitation", waiting().filter(sent_at=None).select_related("organization")):
        if _send("You are invited", _invitation(invitation), invitation.email):
            Invitation.objects.filter(pk=invitation.pk).update(sent_at=timezone.now())
            sent += 1
    return sent


def _next(kind: str, rows: QuerySet[_Row]) -> list[_Row]:
    """Return the rows that follow those of the run before, and begin again behind the last: those that cannot be sent,
    however many there are, keep no other waiting for more than a round."""
    ordered, after = rows.order_by("pk"), _tried_last.get(kind)
    found = list(ordered.filter(pk__gt=after)[:_AT_ONCE]) if after is not None else []
    if len(found) < _AT_ONCE:
        before = ordered if after is None else ordered.filter(pk__lte=after)
        found += before[: _AT_ONCE - len(found)]
    if found:
        _tried_last[kind] = found[-1].pk
    return found


def _verification(user: User) -> str:
    return _VERIFY.format(place=settings.PUBLIC_URL, token=verification_token(user))


def _sign_up_tried(user: User) -> str:
    return _SIGN_UP_TRIED.format(place=settings.PUBLIC_URL, token=reset_token(user))


def _reset(user: User) -> str:
    return _RESET.format(place=settings.PUBLIC_URL, token=reset_token(user))


def _send_email_change(user: User) -> bool:
    """Ask at the new address, unless it has an account, and tell the old one; whether both went out."""
    text = _CHANGE.format(place=settings.PUBLIC_URL, token=email_change_token(user))
    if not user.wanted_email or User.objects.filter(email=user.wanted_email).exists():
        return True
    notice = _CHANGE_ASKED.format(place=settings.PUBLIC_URL, wanted=user.wanted_email)
    return _send("Your e-mail address is to change", notice, user.email) and _send(
        "Confirm your new e-mail address", text, user.wanted_email
    )


def _invitation(invitation: Invitation) -> str:
    organization = invitation.organization
    # A name is somebody's words: on one line, and not so long as to tell a story.
    name = "" if organization is None else " ".join(organization.name.split())[:60]
    member = (
        ""
        if organization is None
        else _MEMBER.format(place=settings.PUBLIC_URL, organization=organization.id, identifier=invitation.id)
    )
    return _INVITED.format(
        what=f"join the organization “{name}”" if name else "sign up",
        place=settings.PUBLIC_URL,
        email=invitation.email,
        token=invitation_token(invitation),
        link=sign_up_link(invitation),
        member=member,
    )


def _send(subject: str, text: str, address: str) -> bool:
    try:
        EmailMessage(subject, text, to=[address]).send()
    except (OSError, SMTPException) as error:
        log.warning("message.not_sent", error=type(error).__name__)
        return False
    return True

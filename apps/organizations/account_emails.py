"""E-mail about accounts: confirm your address, you are invited. The rows say what is yet to be sent, until it is.

Knows the words. A process that dies after sending and before forgetting sends twice; none is lost. Must never hold up a
request, nor write a token where it could be read by others than who has the mailbox.
"""

from __future__ import annotations

from smtplib import SMTPException

import structlog
from django.conf import settings
from django.core.mail import EmailMessage
from django.utils import timezone

from apps.organizations.email_tokens import invitation_token, verification_token
from apps.organizations.invitations import waiting
from apps.organizations.models import Invitation, User

log = structlog.get_logger(__name__)
# Sent in one run.
_AT_ONCE = 200
_CONSOLE = "django.core.mail.backends.console.EmailBackend"
_VERIFY = """Somebody, hopefully you, signed up at {place} with this e-mail address.

To confirm that it is yours, within 24 hours, send

    POST {place}/auth/verify-email
    {{"token": "{token}"}}

If it was not you, there is nothing to do.
"""
_INVITED = """You are invited to {what} at {place}.

To sign up, within 7 days, send

    POST {place}/auth/sign-up/email
    {{"name": "…", "email": "{email}", "password": "…", "invitation": "{token}"}}
{member}
If you do not know why, there is nothing to do.
"""
_MEMBER = """
With an account there already, sign in and send

    POST {place}/organization/{organization}/invitations/{identifier}/accept
"""


def send_pending_emails() -> int:
    """Send what is waiting; return how many messages. What cannot be sent stays."""
    if settings.EMAIL_BACKEND == _CONSOLE and not settings.DEVELOPMENT:
        # It would put tokens into a log. A warning at the start says how e-mail is set up.
        return 0
    sent = 0
    for user in User.objects.exclude(verification_wanted_at=None)[:_AT_ONCE]:
        if user.email_verified_at is not None or _send("Confirm your e-mail address", _verification(user), user.email):
            wanted = user.verification_wanted_at
            User.objects.filter(pk=user.pk, verification_wanted_at=wanted).update(verification_wanted_at=None)
            sent += 1
    for invitation in waiting().filter(sent_at=None).select_related("organization")[:_AT_ONCE]:
        if _send("You are invited", _invitation(invitation), invitation.email):
            Invitation.objects.filter(pk=invitation.pk).update(sent_at=timezone.now())
            sent += 1
    return sent


def _verification(user: User) -> str:
    return _VERIFY.format(place=settings.PUBLIC_URL, token=verification_token(user))


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
        member=member,
    )


def _send(subject: str, text: str, address: str) -> bool:
    try:
        EmailMessage(subject, text, to=[address]).send()
    except (OSError, SMTPException) as error:
        log.warning("message.not_sent", error=type(error).__name__)
        return False
    return True

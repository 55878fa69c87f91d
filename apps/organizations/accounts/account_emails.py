"""E-mails about accounts: confirmation, password reset, change of address, invitation.

Rows record e-mails that are waiting, until they are sent, so requests never wait for a mail server. If a process dies
between sending and updating the row, the e-mail is sent twice; none is lost. Tokens appear in e-mails only.
"""

from __future__ import annotations

from collections.abc import Callable
from smtplib import SMTPException
from typing import Literal, TypeVar
from uuid import UUID

import structlog
from django.conf import settings
from django.core.mail import EmailMessage
from django.db.models import Model, QuerySet
from django.utils import timezone
from django.utils.translation import gettext, gettext_noop

from apps.kernel.pages.languages import email_language
from apps.organizations.credentials.email_tokens import (
    email_change_token,
    reset_token,
    sign_up_link,
    verification_token,
)
from apps.organizations.invitations import waiting
from apps.organizations.models import Invitation, User

log = structlog.get_logger(__name__)
# E-mails of each kind in one run; and the last row of each kind that was tried.
_AT_ONCE = 200
_tried_last: dict[str, UUID] = {}
Row = TypeVar("Row", bound=Model)
_CONSOLE = "django.core.mail.backends.console.EmailBackend"
_VERIFY = gettext_noop("""Hello,

please confirm your e-mail address for Model gateway ({place}):

    {place}/verify-email?token={token}

The link works for 24 hours.

If you did not sign up, do not open the link. To take over the account with your address, reset its password at
{place}/app/forgot-password, which also removes everything that was added to it.
""")
_SIGN_UP_TRIED = gettext_noop("""Hello,

someone tried to sign up at Model gateway ({place}) with your e-mail address, which already has an account. No new
account was created, and your account has not changed.

If it was you, sign in:

    {place}/app/sign-in

or reset your password. The link works for one hour:

    {place}/reset-password?token={token}

If it was not you, ignore this e-mail.
""")
_RESET = gettext_noop("""Hello,

reset your Model gateway password here:

    {place}/reset-password?token={token}

The link works for one hour.

Ignore this e-mail if you did not ask for it; your password stays the same.
""")
_CHANGE = gettext_noop("""Hello,

please confirm that this is the new e-mail address of your Model gateway account at {place}:

    {place}/change-email?token={token}

The link works for 24 hours.

Ignore this e-mail if you did not ask for it.
""")
_CHANGE_ASKED = gettext_noop("""Hello,

the e-mail address of your Model gateway account at {place} will change to {wanted} once that address is confirmed.

If you did not ask for this, reset your password now at {place}/app/forgot-password: another person knows it.
""")
_INVITED = gettext_noop("""Hello,

{inviter} invited you to sign up at Model gateway ({place}). Create your account here:

    {link}

The link works for 7 days.

Ignore this e-mail if you did not expect it.
""")
_INVITED_TO_JOIN = gettext_noop("""Hello,

{inviter} invited you to join the organization “{name}” on Model gateway ({place}). Create your account here:

    {link}

The link works for 7 days.

If you already have an account, accept the invitation here:

    {place}/app/invitations/{organization}/{identifier}

Ignore this e-mail if you did not expect it.
""")
_OPERATOR = gettext_noop("""Hello,

{inviter} invited you to operate Model gateway ({place}), in the group “{group}”. Create your account here:

    {link}

If you already have an account, accept the invitation here:

    {place}/app/invitations/operators/{identifier}

The links work for 7 days, once. Operators sign in at {place}/admin/, with a passkey or an authenticator app beside the
password.

Ignore this e-mail if you did not expect it.
""")


def delivery() -> Literal["sent", "logged", "kept"]:
    """Return how e-mails are handled: sent; without a mail server logged by the worker in development, else kept."""
    if settings.EMAIL_BACKEND != _CONSOLE:
        return "sent"
    return "logged" if settings.DEVELOPMENT else "kept"


def send_pending_emails() -> int:
    """Send waiting e-mails; return how many. An e-mail that cannot be sent keeps waiting."""
    if delivery() == "kept":
        # Logging them would leak tokens. A warning at startup says how to set up e-mail.
        return 0
    sent = 0
    for user in next_rows("verification", User.objects.exclude(verification_wanted_at=None)):
        if user.email_verified_at is not None or _tell(
            user, gettext_noop("Confirm your e-mail address"), _VERIFY, verification_token
        ):
            wanted = user.verification_wanted_at
            User.objects.filter(pk=user.pk, verification_wanted_at=wanted).update(verification_wanted_at=None)
            sent += 1
    for user in next_rows("sign-up notice", User.objects.exclude(sign_up_tried_at=None)):
        if not user.is_active or _tell(user, gettext_noop("You already have an account"), _SIGN_UP_TRIED, reset_token):
            tried = user.sign_up_tried_at
            User.objects.filter(pk=user.pk, sign_up_tried_at=tried).update(sign_up_tried_at=None)
            sent += 1
    for user in next_rows("password reset", User.objects.exclude(password_reset_wanted_at=None)):
        if not user.is_active or _tell(user, gettext_noop("Reset your Model gateway password"), _RESET, reset_token):
            asked = user.password_reset_wanted_at
            User.objects.filter(pk=user.pk, password_reset_wanted_at=asked).update(password_reset_wanted_at=None)
            sent += 1
    for user in next_rows("email change", User.objects.exclude(email_change_wanted_at=None)):
        if not user.is_active or _send_email_change(user):
            asked = user.email_change_wanted_at
            User.objects.filter(pk=user.pk, email_change_wanted_at=asked).update(email_change_wanted_at=None)
            sent += 1
    for invitation in next_rows(
        "invitation", waiting().filter(sent_at=None).select_related("organization", "invited_by")
    ):
        with email_language(*_languages_of(invitation)):
            subject, text = _invitation(invitation)
        if _send(subject, text, invitation.email):
            Invitation.objects.filter(pk=invitation.pk).update(sent_at=timezone.now())
            sent += 1
    return sent


def next_rows(kind: str, rows: QuerySet[Row]) -> list[Row]:
    """Return the rows after those of the previous run, starting over after the last one: however many e-mails cannot
    be sent, they delay the others by one round at most."""
    ordered, after = rows.order_by("pk"), _tried_last.get(kind)
    found = list(ordered.filter(pk__gt=after)[:_AT_ONCE]) if after is not None else []
    if len(found) < _AT_ONCE:
        before = ordered if after is None else ordered.filter(pk__lte=after)
        found += before[: _AT_ONCE - len(found)]
    if found:
        _tried_last[kind] = found[-1].pk
    return found


def _tell(user: User, subject: str, text: str, token_of: Callable[[User], str]) -> bool:
    """Send a user an e-mail with a link, in their language; return success."""
    with email_language(*user.email_languages):
        subject, text = gettext(subject), gettext(text)
    return _send(subject, text.format(place=settings.PUBLIC_URL, token=token_of(user)), user.email)


def _send_email_change(user: User) -> bool:
    """Send a link to the new address, unless it has an account, and a notice to the old one; return success of both."""
    if not user.wanted_email or User.objects.filter(email=user.wanted_email).exists():
        return True
    place = settings.PUBLIC_URL
    with email_language(*user.email_languages):
        notice = gettext(_CHANGE_ASKED).format(place=place, wanted=user.wanted_email)
        text = gettext(_CHANGE).format(place=place, token=email_change_token(user))
        return _send(gettext("Your e-mail address will change"), notice, user.email) and _send(
            gettext("Confirm your new e-mail address"), text, user.wanted_email
        )


def _languages_of(invitation: Invitation) -> tuple[str, ...]:
    """Return the languages of the invited account, else of the person who invites."""
    known = User.objects.filter(email=invitation.email).first()
    people = [one for one in (known, invitation.invited_by) if one is not None]
    return tuple(code for one in people for code in one.email_languages)


def _invitation(invitation: Invitation) -> tuple[str, str]:
    """Return subject and text."""
    if invitation.operator_group:
        return _operator_invitation(invitation)
    organization, by = invitation.organization, invitation.invited_by
    inviter = "" if by is None else _short(by.name) or by.email
    words = {
        "inviter": inviter or gettext("The operator"),
        "place": settings.PUBLIC_URL,
        "link": sign_up_link(invitation),
    }
    if organization is None:
        subject = (
            gettext("{inviter} invited you to Model gateway")
            if inviter
            else gettext("You are invited to Model gateway")
        )
        return subject.format(inviter=inviter), gettext(_INVITED).format(**words)
    words |= {"name": _short(organization.name), "organization": str(organization.id), "identifier": str(invitation.id)}
    subject = (
        gettext("{inviter} invited you to {name} on Model gateway")
        if inviter
        else gettext("You are invited to {name} on Model gateway")
    )
    return subject.format(**words), gettext(_INVITED_TO_JOIN).format(**words)


def _operator_invitation(invitation: Invitation) -> tuple[str, str]:
    """Return subject and text of an invitation to operators."""
    by = invitation.invited_by
    text = gettext(_OPERATOR).format(
        inviter=gettext("An operator") if by is None else _short(by.name) or by.email,
        place=settings.PUBLIC_URL,
        group=invitation.operator_group,
        link=sign_up_link(invitation),
        identifier=invitation.id,
    )
    return gettext("You are invited to operate Model gateway"), text


def _short(name: str) -> str:
    """Return a user's text on one line, too short for a message of their own."""
    return " ".join(name.split())[:60]


def _send(subject: str, text: str, address: str) -> bool:
    try:
        EmailMessage(subject, text, to=[address]).send()
    except (OSError, SMTPException) as error:
        log.warning("message.not_sent", error=type(error).__name__)
        return False
    return True

"""E-mails to owners about payments: each account stores its unsent notice, so payments never wait for a mail server.

If a process dies between sending and clearing the notice, the e-mail is sent twice; none is lost.
"""
# alone: tasks.py only starts work, which is elsewhere

from __future__ import annotations

from smtplib import SMTPException

import structlog
from django.core.mail import EmailMessage

from apps.billing.models import BillingAccount
from apps.organizations.organization_lookup import owner_addresses

log = structlog.get_logger(__name__)
_Notice = BillingAccount.Notice
_WORDS: dict[str, tuple[str, str]] = {
    _Notice.AUTO_TOP_UP_DECLINED: (
        "Automatic top-up of {name} was declined",
        "The card on file for {name} was declined for an automatic top-up. We will try again later. To try again at "
        "once, add another payment method, or make another one the default.",
    ),
    _Notice.AUTO_TOP_UP_DISABLED: (
        "Automatic top-up of {name} was turned off",
        "The card on file for {name} was declined three times in a row, so automatic top-up was turned off. Requests "
        "will be refused once the credits are used up. Add another payment method and turn automatic top-up on "
        "again.",
    ),
    _Notice.SUBSCRIPTION_UNPAID: (
        "The pro plan of {name} could not be renewed",
        "The payment for the pro plan of {name} failed. We will try again; the plan stays for seven days after the "
        "end of the paid period. Add another payment method to keep it.",
    ),
    _Notice.SUBSCRIPTION_ENDED: (
        "The pro plan of {name} has ended",
        "The subscription of {name} has ended, and with it the pro plan. You can subscribe again at any time.",
    ),
}


def tell_owners() -> int:
    """Send waiting notices; return to how many organizations. A notice that cannot be sent keeps waiting."""
    sent = 0
    for account in BillingAccount.objects.exclude(notice="").select_related("organization"):
        subject, text = (words.format(name=account.organization.name) for words in _WORDS[account.notice])
        try:
            # A line break in a name must not add e-mail headers.
            _send(" ".join(subject.split()), text, _addresses_of(account))
        except (OSError, SMTPException) as error:
            log.warning("notice.not_sent", organization=str(account.organization_id), error=type(error).__name__)
            continue
        # Keep a newer notice that was set meanwhile.
        sent += BillingAccount.objects.filter(pk=account.pk, notice=account.notice).update(notice="")
    return sent


def _send(subject: str, text: str, addresses: list[str]) -> None:
    if addresses:
        EmailMessage(subject, text, bcc=addresses).send()


def _addresses_of(account: BillingAccount) -> list[str]:
    """Return the addresses of the owners and the billing address."""
    addresses = owner_addresses(account.organization_id)
    if account.organization.billing_email:
        addresses.add(account.organization.billing_email)
    return sorted(addresses)

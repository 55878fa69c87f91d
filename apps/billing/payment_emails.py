"""E-mails to owners about payments: notices of problems, receipts, and cards that expire.

Accounts store their unsent notice, transactions and cards whether their e-mail is sent, so payments never wait for a
mail server. If a process dies between sending and recording it, the e-mail is sent twice; none is lost.
"""
# alone: tasks.py only starts work, which is elsewhere

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from smtplib import SMTPException

import structlog
from django.conf import settings
from django.db.models import Q
from django.utils.formats import date_format
from django.utils.functional import lazy
from django.utils.translation import gettext, gettext_noop

from apps.billing.models import BillingAccount, PaymentMethod, Transaction, describe_payment
from apps.organizations.access import by_language, owner_addresses, send_in_languages
from apps.organizations.models import Organization

log = structlog.get_logger(__name__)
_Notice = BillingAccount.Notice
_WORDS: dict[str, tuple[str, str]] = {
    _Notice.AUTO_TOP_UP_DECLINED: (
        gettext_noop("Automatic top-up of {name} was declined"),
        gettext_noop(
            "The card on file for {name} was declined for an automatic top-up. We will try again later. To try again "
            "at once, add another payment method, or make another one the default."
        ),
    ),
    _Notice.AUTO_TOP_UP_DISABLED: (
        gettext_noop("Automatic top-up of {name} was turned off"),
        gettext_noop(
            "The card on file for {name} was declined three times in a row, so automatic top-up was turned off. "
            "Requests will be refused once the credits are used up. Add another payment method and turn automatic "
            "top-up on again."
        ),
    ),
    _Notice.SUBSCRIPTION_UNPAID: (
        gettext_noop("The pro plan of {name} could not be renewed"),
        gettext_noop(
            "The payment for the pro plan of {name} failed. We will try again; the plan stays for seven days after the "
            "end of the paid period. Add another payment method to keep it."
        ),
    ),
    _Notice.SUBSCRIPTION_ENDED: (
        gettext_noop("The pro plan of {name} has ended"),
        gettext_noop(
            "The subscription of {name} has ended, and with it the pro plan. You can subscribe again at any time."
        ),
    ),
}


_Type = Transaction.Type
# By type: subject and text of the e-mail about a completed transaction.
_RECEIPTS: dict[str, tuple[str, str]] = {
    _Type.CREDIT_TOPUP: (
        gettext_noop("{name} was topped up"),
        gettext_noop(
            "The payment of {amount} for {name} was received: {description}. {credits} USD were added to the credits."
        ),
    ),
    _Type.SUBSCRIPTION_START: (
        gettext_noop("Payment for the pro plan of {name}"),
        gettext_noop("The payment of {amount} for {name} was received: {description}."),
    ),
    _Type.SUBSCRIPTION_CANCEL: (
        gettext_noop("The pro plan of {name} was cancelled"),
        gettext_noop("The subscription of {name} was cancelled: {description}. You can resume it until then."),
    ),
    _Type.CREDIT_REFUND: (
        gettext_noop("A payment of {name} was refunded"),
        gettext_noop(
            "{amount} was refunded to {name}, to the card that paid: {description}. As much was taken off the credits."
        ),
    ),
}
_PLACE = gettext_noop("Payments and invoices: {url}")
_EXPIRING = (
    gettext_noop("The card on file for {name} expires this month"),
    gettext_noop(
        "The card {card} of {name} expires at the end of {expiry}. Automatic top-ups and the pro plan are paid with "
        "it. Add another payment method and make it the default, so that requests go on."
    ),
)
# E-mails of one run.
_MAX_RECEIPTS = 1_000


def tell_owners() -> int:
    """Send waiting notices; return to how many organizations. A notice that cannot be sent keeps waiting."""
    sent = 0
    for account in BillingAccount.objects.exclude(notice="").select_related("organization"):
        try:
            _send(_WORDS[account.notice], {"name": account.organization.name}, _addresses_of(account.organization))
        except (OSError, SMTPException) as error:
            log.warning("notice.not_sent", organization=str(account.organization_id), error=type(error).__name__)
            continue
        # Keep a newer notice that was set meanwhile.
        sent += BillingAccount.objects.filter(pk=account.pk, notice=account.notice).update(notice="")
    return sent


def send_receipts() -> int:
    """Send the e-mails about completed payments, refunds and cancellations; return how many. Failed ones wait."""
    rows = Transaction.objects.filter(status=Transaction.Status.COMPLETED, is_receipted=False, type__in=_RECEIPTS)
    rows = rows.exclude(organization__status=Organization.Status.DELETED).select_related("organization")
    sent = 0
    for row in rows.order_by("id")[:_MAX_RECEIPTS]:
        words = {
            "name": row.organization.name,
            "amount": f"{row.amount:.2f} {row.currency}",
            "credits": f"{row.credit_amount or 0:.2f}",
            "description": lazy(describe_payment, str)(row.description or row.get_type_display()),
        }
        if _tell(row.organization, _RECEIPTS[row.type], words):
            sent += Transaction.objects.filter(pk=row.pk, is_receipted=False).update(is_receipted=True)
    return sent


def tell_of_expiring_cards(now: datetime) -> int:
    """Tell owners that the default card expires this month, where payments depend on it; return how many cards."""
    expiry = f"{now:%Y-%m}"
    cards = PaymentMethod.objects.filter(is_default=True, exp_year=now.year, exp_month=now.month)
    cards = cards.filter(
        Q(organization__auto_top_up_enabled=True) | Q(organization__billing_account__subscription_status__gt="")
    )
    cards = cards.exclude(noticed_expiry=expiry).exclude(organization__status=Organization.Status.DELETED)
    told = 0
    for card in cards.select_related("organization").order_by("id"):
        words = {
            "name": card.organization.name,
            "card": f"{card}".strip(),
            "expiry": lazy(date_format, str)(now, "YEAR_MONTH_FORMAT"),
        }
        if _tell(card.organization, _EXPIRING, words):
            told += PaymentMethod.objects.filter(pk=card.pk).update(noticed_expiry=expiry)
    return told


def _tell(organization: Organization, given: tuple[str, str], words: Mapping[str, object]) -> bool:
    """Send an e-mail to an organization; return whether it was accepted."""
    url = f"{settings.PUBLIC_URL}/app/o/{organization.pk}/billing"
    try:
        _send((*given, _PLACE), {**words, "url": url}, _addresses_of(organization))
    except (OSError, SMTPException) as error:
        log.warning("receipt.not_sent", organization=str(organization.pk), error=type(error).__name__)
        return False
    return True


def _send(given: Sequence[str], words: Mapping[str, object], addresses: list[str]) -> None:
    """Send subject and paragraphs to addresses, to each in its language, as are lazy words."""

    def write() -> tuple[str, str]:
        subject, *paragraphs = (gettext(one).format(**words) for one in given)
        return subject, "\n\n".join(paragraphs)

    send_in_languages(by_language(addresses), write)


def _addresses_of(organization: Organization) -> list[str]:
    """Return the addresses of the owners and the billing address."""
    addresses = owner_addresses(organization.pk)
    if organization.billing_email:
        addresses.add(organization.billing_email)
    return sorted(addresses)

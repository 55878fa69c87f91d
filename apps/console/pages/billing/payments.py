"""The billing page: top-ups and their confirmation (3-D Secure), automatic top-up, the subscription.

Calls to the payment processor run outside transactions, under an idempotency key of the form: a form submitted twice
is one payment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext

from apps.billing import payment_processor, subscription, topup
from apps.billing.access import access_top_up
from apps.billing.auto_topup import HIGHEST, LOWEST
from apps.billing.cards import default_card
from apps.billing.invoices import has_invoice
from apps.billing.models import BillingAccount, PaymentMethod, Transaction
from apps.billing.payment_processor_types import worded
from apps.billing.serializers import NewTopUpShape, TransactionsQuery
from apps.console.forms import Form, attempt, once_key, read_form, read_query
from apps.console.pages.billing.documents import months_of
from apps.console.rendering import show
from apps.console.templatetags.console import usd
from apps.console.visit import back_to, workspace_page
from apps.console.workspace import Workspace
from apps.kernel.errors import ApiError
from apps.kernel.rest.pages import page_of
from apps.organizations.actions import change_organization
from apps.organizations.models import Plan, Role
from apps.organizations.serializers import OrganizationChangesShape

# Transactions on the main page; the rest are paginated separately.
LATEST = 8
_DETAILS = frozenset({"billing_email", "billing_company", "billing_address", "billing_tax_id"})
_AUTOMATIC = frozenset({"auto_top_up_enabled", "auto_top_up_threshold", "auto_top_up_amount"})


@workspace_page(needs=Role.ADMIN)
def billing(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Show balance, cards and payments."""
    return show_billing(request, workspace)


def show_billing(request: HttpRequest, workspace: Workspace, **forms: Form) -> HttpResponse:
    """Return the main page; `forms` are the refused ones, by name."""
    organization = workspace.organization
    organization.refresh_from_db()
    account = BillingAccount.objects.filter(organization=organization).first()
    rows = Transaction.objects.filter(organization=organization).order_by("-id")[: LATEST + 1]
    return show(
        request,
        "billing/main",
        workspace,
        entry="billing",
        status=max((form.status for form in forms.values()), default=200),
        organization=organization,
        is_on=payment_processor.is_on(),
        has_pro=bool(settings.STRIPE_PRO_PRICE),
        price=subscription.PRICE,
        account=account,
        is_subscribed=bool(account and account.subscription_status),
        is_free=organization.plan == Plan.FREE,
        cards=PaymentMethod.objects.filter(organization=organization).order_by("-is_default", "-id"),
        card=default_card(organization),
        transactions=_table_rows(list(rows[:LATEST])),
        has_more=len(rows) > LATEST,
        lowest=LOWEST,
        highest=HIGHEST,
        months=months_of(organization, timezone.now()),
        forms=forms,
    )


@workspace_page(needs=Role.ADMIN)
def transactions(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """List all transactions, newest first."""
    query = read_query(request, TransactionsQuery)
    rows = Transaction.objects.filter(organization=workspace.organization).order_by("-id")
    if cursor := query.get("cursor"):
        rows = rows.filter(id__lt=cursor)
    page = page_of(list(rows[: query["limit"] + 1]), query["limit"], lambda row: row.id)
    return show(
        request,
        "billing/transactions",
        workspace,
        entry="billing",
        transactions=_table_rows(list(page.rows)),
        following=page.next_cursor,
        is_first=not request.GET.get("cursor"),
    )


@workspace_page("POST", needs=Role.OWNER)
def top_up(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Charge the default card and add credits; a resubmitted form is the same payment."""
    organization = workspace.organization

    def pay() -> topup.TopUpResult:
        amount = read_form(request, NewTopUpShape)["amount"]
        with worded():
            payment_processor.require()
            result = topup.pay(topup.begin(organization, amount, once_key(request, workspace.user)))
        topup.require_paid(result)
        return result

    done, form = attempt(request, pay)
    if done is None:
        return show_billing(request, workspace, top_up=form)
    tell_top_up(request, done)
    return back_to("billing", workspace)


@workspace_page("POST", needs=Role.OWNER)
def automatic(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Turn automatic top-up on or off, and set its limits."""
    return _change(request, workspace, _AUTOMATIC, "automatic", gettext("Automatic top-up was saved."))


@workspace_page("POST", needs=Role.OWNER)
def details(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Change the billing details for future invoices."""
    return _change(request, workspace, _DETAILS, "details", gettext("Billing details were saved for future invoices."))


@workspace_page("POST", needs=Role.OWNER)
def subscribe(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Start the pro plan, or resume a cancelled one."""
    key = once_key(request, workspace.user)
    return _do(
        request,
        workspace,
        lambda: subscription.start(workspace.organization, key),
        gettext("You subscribed to the pro plan. It starts once the payment is confirmed."),
    )


@workspace_page("POST", needs=Role.OWNER)
def unsubscribe(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Cancel the pro plan at the end of the paid period."""
    return _do(
        request,
        workspace,
        lambda: subscription.cancel(workspace.organization),
        gettext("The subscription ends with the paid period."),
    )


def tell_top_up(request: HttpRequest, result: topup.TopUpResult) -> None:
    """Add a message with the result of a top-up for the next page."""
    row = result.transaction
    if row.status == Transaction.Status.COMPLETED:
        messages.success(request, format_html(gettext("{} were added to your credits."), usd(row.credit_amount)))
    elif row.status == Transaction.Status.FAILED:
        messages.error(request, gettext("Nothing was charged. {description}.").format(description=row.description))
    elif result.client_secret:
        messages.warning(
            request,
            gettext("Your bank asks you to confirm this payment: press Confirm below. No credits were added yet."),
        )
    else:
        messages.warning(
            request, gettext("The payment is being processed. The credits appear here once it is confirmed.")
        )


def _do(request: HttpRequest, workspace: Workspace, work: Callable[[], object], done: str) -> HttpResponse:
    def wording() -> bool:
        with worded():
            work()
        return True

    worked, form = attempt(request, wording)
    if worked is None:
        return show_billing(request, workspace, subscription=form)
    messages.success(request, done)
    return back_to("billing", workspace)


def _change(request: HttpRequest, workspace: Workspace, columns: frozenset[str], name: str, done: str) -> HttpResponse:
    def change() -> bool:
        given = read_form(request, OrganizationChangesShape)
        changes = {column: value for column, value in given.items() if column in columns}
        change_organization(organization=workspace.organization, changes=changes)
        return True

    changed, form = attempt(request, change)
    if changed is None:
        return show_billing(request, workspace, **{name: form})
    messages.success(request, done)
    return back_to("billing", workspace)


def _table_rows(rows: list[Transaction]) -> list[dict[str, Any]]:
    return [{"row": row, "has_invoice": has_invoice(row), "is_unconfirmed": _is_unconfirmed(row)} for row in rows]


def _is_unconfirmed(row: Transaction) -> bool:
    """Tell whether a payment may wait for its card's holder; what became of it the processor knows."""
    is_open = row.status == Transaction.Status.PENDING and bool(row.processor_payment_intent_id)
    return is_open and row.type == Transaction.Type.CREDIT_TOPUP and not row.is_automatic


@workspace_page("POST", needs=Role.OWNER)
def confirm(request: HttpRequest, workspace: Workspace, transaction_id: str) -> HttpResponse:
    """Show a link to the bank's page; the content security policy does not let a form redirect there."""
    row = access_top_up(workspace.user, str(workspace.organization.id), transaction_id)
    where = {"organization_id": workspace.organization.id, "transaction_id": row.id}
    returning = f"{settings.PUBLIC_URL}{reverse('console:payment_confirmed', kwargs=where)}"

    def begin() -> tuple[str | None, Transaction]:
        with worded():
            address = topup.open_confirmation(row, returning)
            return address, row if address else _recovered(row)

    done, form = attempt(request, begin)
    if done is None:
        return show_billing(request, workspace, top_up=form)
    address, seen = done
    if address is None:
        tell_top_up(request, topup.TopUpResult(seen))
        return back_to("billing", workspace)
    return show(request, "billing/confirm_payment", workspace, entry="billing", address=address, row=row)


@workspace_page(needs=Role.OWNER)
def confirmed(request: HttpRequest, workspace: Workspace, transaction_id: str) -> HttpResponse:
    """Fetch the payment's state from the processor. Safe to open by anyone and repeatedly."""
    row = access_top_up(workspace.user, str(workspace.organization.id), transaction_id)
    try:
        with worded():
            seen = _recovered(row)
        tell_top_up(request, topup.TopUpResult(seen))
    except ApiError as error:
        messages.error(request, error.message)
    return back_to("billing", workspace)


def _recovered(row: Transaction) -> Transaction:
    """Return the payment in the processor's current state."""
    return topup.recover(row) if row.status == Transaction.Status.PENDING else row


_HERE = "o/<str:organization_id>/billing"
_PAYMENT = f"{_HERE}/payments/<str:transaction_id>"
PATHS = [
    path(_HERE, billing, name="billing"),
    path(f"{_HERE}/transactions", transactions, name="transactions"),
    path(f"{_HERE}/top-up", top_up, name="top_up"),
    path(f"{_HERE}/automatic", automatic, name="automatic_top_up"),
    path(f"{_HERE}/details", details, name="billing_details"),
    path(f"{_HERE}/subscribe", subscribe, name="subscribe"),
    path(f"{_HERE}/unsubscribe", unsubscribe, name="unsubscribe"),
    path(f"{_PAYMENT}/confirm", confirm, name="confirm_payment"),
    path(f"{_PAYMENT}/confirmed", confirmed, name="payment_confirmed"),
]

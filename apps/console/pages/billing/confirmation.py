"""Payment confirmation (3-D Secure): leads to the page of the card's bank and back.

The payment processor decides whether the payment succeeded.
"""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import path, reverse

from apps.billing import topup
from apps.billing.access import access_top_up
from apps.billing.models import Transaction
from apps.billing.payment_processor_types import worded
from apps.console.forms import attempt
from apps.console.pages.billing.payments import show_billing, tell_top_up
from apps.console.rendering import show
from apps.console.visit import back_to, workspace_page
from apps.console.workspace import Workspace
from apps.kernel.errors import ApiError
from apps.organizations.models import Role


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


_HERE = "o/<str:organization_id>/billing/payments/<str:transaction_id>"
PATHS = [
    path(f"{_HERE}/confirm", confirm, name="confirm_payment"),
    path(f"{_HERE}/confirmed", confirmed, name="payment_confirmed"),
]

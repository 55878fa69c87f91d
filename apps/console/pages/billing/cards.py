"""Cards: add one on the payment processor's page, make one the default, remove one.

Our pages never see card numbers and load nothing from the processor.
"""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import path, reverse
from django.utils.translation import gettext

from apps.billing import cards
from apps.billing.access import access_payment_method
from apps.billing.models import PaymentMethod
from apps.billing.payment_processor_types import worded
from apps.console.forms import attempt
from apps.console.pages.billing.payments import show_billing
from apps.console.rendering import show
from apps.console.visit import back_to, workspace_page
from apps.console.workspace import Workspace
from apps.kernel.errors import ApiError, InvalidRequest
from apps.organizations.models import Role

# Characters of the id of the processor's page.
_MAX_PAGE = 200


@workspace_page("POST", needs=Role.OWNER)
def new_card(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Show a link to the processor's page; the content security policy does not let a form redirect there."""
    where = {"organization_id": workspace.organization.id}
    returning = f"{settings.PUBLIC_URL}{reverse('console:card_entered', kwargs=where)}?page={{CHECKOUT_SESSION_ID}}"
    leaving = f"{settings.PUBLIC_URL}{reverse('console:billing', kwargs=where)}"

    def begin() -> str:
        with worded():
            return cards.open_page(workspace.organization, returning, leaving)

    address, form = attempt(request, begin)
    if address is None:
        return show_billing(request, workspace, cards=form)
    return show(request, "billing/new_card", workspace, entry="billing", address=address)


@workspace_page(needs=Role.OWNER)
def card_entered(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Save the card from the processor's page. Coming back twice saves it once."""
    page = request.GET.get("page", "")
    try:
        if not 0 < len(page) <= _MAX_PAGE or not page.replace("_", "").isalnum():
            raise InvalidRequest("No card was entered")
        with worded():
            card = cards.fetch_from_page(workspace.organization, page)
            kept = cards.keep(workspace.organization, card)
        messages.success(request, gettext("{name} was added.").format(name=_name_of(kept)))
    except ApiError as error:
        messages.error(request, error.message)
    return back_to("billing", workspace)


@workspace_page("POST", needs=Role.OWNER)
def default_card(request: HttpRequest, workspace: Workspace, card_id: str) -> HttpResponse:
    """Make a card the default."""
    row = access_payment_method(workspace.user, str(workspace.organization.id), card_id)

    def change() -> str:
        with worded():
            return _name_of(cards.make_default(row))

    changed, form = attempt(request, change)
    if changed is None:
        return show_billing(request, workspace, cards=form)
    messages.success(request, gettext("{name} is now the default card.").format(name=changed))
    return back_to("billing", workspace)


@workspace_page("POST", needs=Role.OWNER)
def remove_card(request: HttpRequest, workspace: Workspace, card_id: str) -> HttpResponse:
    """Remove a card."""
    row = access_payment_method(workspace.user, str(workspace.organization.id), card_id)

    def remove() -> bool:
        with worded():
            cards.remove(row)
        return True

    removed, form = attempt(request, remove)
    if removed is None:
        return show_billing(request, workspace, cards=form)
    messages.success(request, gettext("{name} was removed.").format(name=_name_of(row)))
    return back_to("billing", workspace)


def _name_of(card: PaymentMethod) -> str:
    return gettext("{brand} ending in {digits}").format(brand=card.brand.title(), digits=card.last_four)


_HERE = "o/<str:organization_id>/billing/cards"
PATHS = [
    path(f"{_HERE}/new", new_card, name="new_card"),
    path(f"{_HERE}/entered", card_entered, name="card_entered"),
    path(f"{_HERE}/<str:card_id>/default", default_card, name="default_card"),
    path(f"{_HERE}/<str:card_id>/remove", remove_card, name="remove_card"),
]

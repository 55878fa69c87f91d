"""The start page: what the gateway is, and how to send a first request.

At the same path, programs get the health check (docs/adr/0119).
"""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from apps.console.browser_session import find_browser_session
from apps.console.model_cards import current_cards
from apps.console.rendering import show
from apps.console.snippets import first_model, snippets_for
from apps.console.visit import public_page


@public_page()
def welcome(request: HttpRequest) -> HttpResponse:
    """Show the page."""
    cards = current_cards()
    return show(
        request,
        "welcome",
        visitor=find_browser_session(request),
        models=len(cards),
        providers=len({name for card in cards for name in card.providers}),
        base_url=settings.PUBLIC_URL,
        snippets=snippets_for("chat", first_model(), settings.PUBLIC_URL)[:2],
        takes_sign_ups=settings.SIGN_UP == "open",
    )

"""The visitor's own account: name, e-mail address, password, second factor, sessions."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import path

from apps.console.rendering import show
from apps.console.visit import public_page


@public_page()
def account(request: HttpRequest) -> HttpResponse:
    """Show the page."""
    return show(request, "pending_plain")


PATHS = [
    path("account", account, name="account"),
]

"""Billing: credits, cards, top-ups, subscription, invoices."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import path

from apps.console.rendering import show
from apps.console.visit import workspace_page
from apps.console.workspace import Workspace


@workspace_page()
def billing(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Show the page."""
    return show(request, "pending", workspace, entry="billing")


PATHS = [
    path("o/<str:organization_id>/billing", billing, name="billing"),
]

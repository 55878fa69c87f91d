"""Provider keys: list, add with a test, remove."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import path

from apps.console.rendering import show
from apps.console.visit import workspace_page
from apps.console.workspace import Workspace


@workspace_page()
def provider_keys(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Show the page."""
    return show(request, "pending", workspace, entry="provider_keys")


PATHS = [
    path("o/<str:organization_id>/provider-keys", provider_keys, name="provider_keys"),
]

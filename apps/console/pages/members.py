"""Members and invitations."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import path

from apps.console.rendering import show
from apps.console.visit import workspace_page
from apps.console.workspace import Workspace


@workspace_page()
def members(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Show the page."""
    return show(request, "pending", workspace, entry="members")


PATHS = [
    path("o/<str:organization_id>/members", members, name="members"),
]

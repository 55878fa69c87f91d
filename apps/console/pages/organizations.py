"""Home, new organizations, and the settings of one."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import path

from apps.console.rendering import show
from apps.console.visit import public_page, workspace_page
from apps.console.workspace import Workspace


@public_page()
def home(request: HttpRequest) -> HttpResponse:
    """Show the page."""
    return show(request, "pending_plain")


@public_page()
def new_organization(request: HttpRequest) -> HttpResponse:
    """Show the page."""
    return show(request, "pending_plain")


@workspace_page()
def organization_settings(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Show the page."""
    return show(request, "pending", workspace, entry="organization_settings")


PATHS = [
    path("", home, name="home"),
    path("organizations/new", new_organization, name="new_organization"),
    path("o/<str:organization_id>/settings", organization_settings, name="organization_settings"),
]

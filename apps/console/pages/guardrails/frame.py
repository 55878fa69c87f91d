"""Shared frame of the guardrails pages: their tabs, and the page for plans without guardrails."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from apps.console.rendering import show
from apps.console.visit import workspace_page
from apps.console.workspace import Workspace
from apps.guardrails.access import access_guarded
from apps.organizations.models import Role
from apps.organizations.plans import limits_of

_TABS = (
    ("guardrails", "Rules"),
    ("custom_rules", "Your own rules"),
    ("try_guardrails", "Try a text"),
    ("violations", "Violations"),
)
_View = Callable[Concatenate[HttpRequest, Workspace, ...], HttpResponse]


def guarded_page(*methods: str) -> Callable[[_View], Callable[..., Any]]:
    """Make a view a page of an organization whose guardrails the visitor may manage.

    On a plan without guardrails all pages show that they need another plan; forms raise Forbidden.
    """

    def decorate(view: _View) -> Callable[..., Any]:
        @workspace_page(*methods, needs=Role.ADMIN)
        @wraps(view)
        def serve(request: HttpRequest, workspace: Workspace, **names: Any) -> HttpResponse:
            if request.method != "POST" and not limits_of(workspace.organization.plan).guardrails:
                return show(request, "guardrails/no_plan", workspace, entry="guardrails")
            access_guarded(workspace.user, str(workspace.organization.id))
            return view(request, workspace, **names)

        return serve

    return decorate


def show_tab(
    request: HttpRequest, template: str, workspace: Workspace, *, tab: str, status: int = 200, **context: Any
) -> HttpResponse:
    """Return a page of guardrails with its tab open."""
    where = {"organization_id": workspace.organization.id}
    tabs = [(words, reverse(f"console:{route}", kwargs=where), route == tab) for route, words in _TABS]
    return show(request, f"guardrails/{template}", workspace, entry="guardrails", status=status, tabs=tabs, **context)

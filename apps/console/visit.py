"""Decorators of pages: who visits, in which workspace, and under which policy the browser shows the page.

Knows what all pages have in common. Must never know what a page shows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, Final, cast
from urllib.parse import urlencode
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_http_methods

from apps.console.browser_session import BrowserSession, find_browser_session
from apps.console.nearest_page import OPENS, nearest_page
from apps.console.workspace import Workspace, open_workspace
from apps.organizations import audit
from apps.organizations.models import Role

# Scripts and styles are files of ours, and none stands in a page; pictures and sound may be in an answer that a page
# shows (`data:`), or be made from one (`blob:`).
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "media-src 'self' data: blob:; font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
NEXT: Final = "next"
# The cookie that says which organization was visited last, and for how many seconds.
LAST_VISITED: Final = "gateway-organization"
_REMEMBERED: Final = 90 * 24 * 3_600
# Characters of a path that a visitor is led back to.
MAX_NEXT: Final = 2_000
_View = Callable[..., HttpResponseBase]
_PublicView = Callable[Concatenate[HttpRequest, ...], HttpResponseBase]
_SignedInView = Callable[Concatenate[HttpRequest, BrowserSession, ...], HttpResponseBase]
_WorkspaceView = Callable[Concatenate[HttpRequest, Workspace, ...], HttpResponseBase]


def public_page(*methods: str) -> Callable[[_PublicView], _View]:
    """Make a view a page for everybody; `methods` are GET alone unless told.

    Whoever opens the address of one that takes POST alone is led to the nearest page above it.
    """
    opens = not methods or "GET" in methods

    def decorate(view: _PublicView) -> _View:
        @wraps(view)
        def serve(request: HttpRequest, **names: Any) -> HttpResponseBase:
            if not opens and request.method in {"GET", "HEAD"}:
                return HttpResponseRedirect(nearest_page(request.path))
            with audit.acting():
                response = view(request, **names)
            response.headers.setdefault("Content-Security-Policy", POLICY)
            # What stands on it is for this visitor, and not for whoever comes to the machine after them.
            response.headers.setdefault("Cache-Control", "private, no-store")
            return response

        page: Any = require_http_methods(["GET", "HEAD", *methods])(serve)
        setattr(page, OPENS, opens)
        # Its forms bring Django's token against forgery, which the middleware asks for.
        page.is_page = True
        return cast(_View, page)

    return decorate


def signed_in_page(*methods: str) -> Callable[[_SignedInView], _View]:
    """Make a view a page for who is signed in: it is given their session; others are led to the sign-in."""

    def decorate(view: _SignedInView) -> _View:
        @public_page(*methods)
        @wraps(view)
        def serve(request: HttpRequest, **names: Any) -> HttpResponseBase:
            visitor = find_browser_session(request)
            if visitor is None:
                return lead_to_sign_in(request)
            audit.act_as(visitor.user)
            return view(request, visitor, **names)

        return serve

    return decorate


def workspace_page(*methods: str, needs: Role = Role.DEVELOPER) -> Callable[[_WorkspaceView], _View]:
    """Make a view a page of an organization, whose id is `organization_id` in the path: it is given the workspace.

    The page raises NotFound for no such organization, Forbidden for strangers and for roles that do not reach.
    """

    def decorate(view: _WorkspaceView) -> _View:
        @signed_in_page(*methods)
        @wraps(view)
        def serve(
            request: HttpRequest, visitor: BrowserSession, organization_id: str, **names: Any
        ) -> HttpResponseBase:
            workspace = open_workspace(visitor.user, visitor.session, organization_id, needs)
            response = view(request, workspace, **names)
            _remember(request, response, str(workspace.organization.id))
            return response

        return serve

    return decorate


def lead_to(route: str, organization_id: UUID | str, **names: Any) -> HttpResponse:
    """Return the way to a page of an organization."""
    return HttpResponseRedirect(reverse(f"console:{route}", kwargs={"organization_id": organization_id, **names}))


def back_to(route: str, workspace: Workspace) -> HttpResponse:
    """Return the way back to a page of the workspace, for whoever has sent one of its forms."""
    where = reverse(f"console:{route}", kwargs={"organization_id": workspace.organization.id})
    return HttpResponseRedirect(where, status=303)


def lead_to_sign_in(request: HttpRequest) -> HttpResponse:
    """Return the way to the sign-in, which leads back here; a part of a page leads the whole page there."""
    here = request.get_full_path()
    if request.method not in {"GET", "HEAD"}:
        # What was being sent is not sent again.
        here = request.path
        if "HX-Request" not in request.headers:
            messages.warning(request, "Your session has ended. Sign in, and send the form again: it was not saved.")
    # A part of a query may mean something else.
    here = here if len(here) <= MAX_NEXT else request.path[:MAX_NEXT]
    target = f"{reverse('console:sign_in')}?{urlencode({NEXT: here})}"
    if "HX-Request" in request.headers:
        return HttpResponse(status=401, headers={"HX-Redirect": target})
    return HttpResponseRedirect(target)


def _remember(request: HttpRequest, response: HttpResponseBase, organization_id: str) -> None:
    """Let the browser bring back which organization was visited last; it says nothing about what may be seen."""
    if request.COOKIES.get(LAST_VISITED) != organization_id:
        response.set_cookie(
            LAST_VISITED,
            organization_id,
            max_age=_REMEMBERED,
            secure=settings.SESSION_COOKIE_SECURE,
            httponly=True,
            samesite="Lax",
            path="/app/",
        )


def next_path(request: HttpRequest, otherwise: str) -> str:
    """Return the path of ours that `next` names; `otherwise` for none, and for any that leads elsewhere."""
    wanted = request.POST.get(NEXT) or request.GET.get(NEXT) or ""
    if len(wanted) <= MAX_NEXT and wanted.startswith("/") and url_has_allowed_host_and_scheme(wanted, None):
        return wanted
    return otherwise

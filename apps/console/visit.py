"""Decorators of pages: session, workspace, and content security policy.

A path that accepts only forms leads to the nearest page above it: visitors open such a path from the address bar, or
when they sign in again after their session ended.
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
from django.urls import Resolver404, resolve, reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext
from django.views.decorators.http import require_http_methods

from apps.console.browser_session import BrowserSession, find_browser_session
from apps.console.workspace import Workspace, open_workspace
from apps.kernel.pages.languages import page_language
from apps.organizations.accounts.account_actions import note_language
from apps.organizations.journal import audit
from apps.organizations.models import Role

# Scripts and styles are our own files, never inline; pages show images and audio of an answer (`data:`), or ones made
# from it (`blob:`).
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "media-src 'self' data: blob:; font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
NEXT: Final = "next"
# The cookie with the last visited organization, and its lifetime in seconds.
LAST_VISITED: Final = "gateway-organization"
_REMEMBERED: Final = 90 * 24 * 3_600
# Characters of a path to return to.
MAX_NEXT: Final = 2_000
_View = Callable[..., HttpResponseBase]
_PublicView = Callable[Concatenate[HttpRequest, ...], HttpResponseBase]
_SignedInView = Callable[Concatenate[HttpRequest, BrowserSession, ...], HttpResponseBase]
_WorkspaceView = Callable[Concatenate[HttpRequest, Workspace, ...], HttpResponseBase]


def public_page(*methods: str) -> Callable[[_PublicView], _View]:
    """Make a view a public page; `methods` defaults to GET.

    Opening the address of a POST-only page leads to the nearest page above it.
    """
    opens = not methods or "GET" in methods

    def decorate(view: _PublicView) -> _View:
        @wraps(view)
        def serve(request: HttpRequest, **names: Any) -> HttpResponseBase:
            if not opens and request.method in {"GET", "HEAD"}:
                return HttpResponseRedirect(nearest_page(request.path))
            with audit.acting(), page_language(request):
                response = view(request, **names)
            response.headers.setdefault("Content-Security-Policy", POLICY)
            # The page is for this visitor and must not stay in a shared browser's cache.
            response.headers.setdefault("Cache-Control", "private, no-store")
            return response

        page: Any = require_http_methods(["GET", "HEAD", *methods])(serve)
        setattr(page, OPENS, opens)
        # Forms send Django's CSRF token, which the middleware checks.
        page.is_page = True
        return cast(_View, page)

    return decorate


def signed_in_page(*methods: str) -> Callable[[_SignedInView], _View]:
    """Make a view a page for signed-in visitors and pass their session; others are sent to the sign-in."""

    def decorate(view: _SignedInView) -> _View:
        @public_page(*methods)
        @wraps(view)
        def serve(request: HttpRequest, **names: Any) -> HttpResponseBase:
            visitor = find_browser_session(request)
            if visitor is None:
                return lead_to_sign_in(request)
            audit.act_as(visitor.user)
            with page_language(request, visitor.user.language):
                note_language(visitor.user)
                return view(request, visitor, **names)

        return serve

    return decorate


def workspace_page(*methods: str, needs: Role = Role.DEVELOPER) -> Callable[[_WorkspaceView], _View]:
    """Make a view a page of an organization, whose id is `organization_id` in the path, and pass the workspace.

    The page raises NotFound for an unknown organization, Forbidden for non-members and for insufficient roles.
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
    """Redirect to a page of an organization."""
    return HttpResponseRedirect(reverse(f"console:{route}", kwargs={"organization_id": organization_id, **names}))


def back_to(route: str, workspace: Workspace, **names: str) -> HttpResponse:
    """Redirect to a page of the workspace after a form."""
    where = reverse(f"console:{route}", kwargs={"organization_id": workspace.organization.id, **names})
    return HttpResponseRedirect(where, status=303)


def lead_to_sign_in(request: HttpRequest) -> HttpResponse:
    """Redirect to the sign-in, which leads back here; for a part of a page, redirect the whole page."""
    here = request.get_full_path()
    if request.method not in {"GET", "HEAD"}:
        # A submitted form is not sent again.
        here = request.path
        if "HX-Request" not in request.headers:
            messages.warning(
                request, gettext("Your session has ended. Sign in, and send the form again: it was not saved.")
            )
    # A truncated query could mean something else.
    here = here if len(here) <= MAX_NEXT else request.path[:MAX_NEXT]
    target = f"{reverse('console:sign_in')}?{urlencode({NEXT: here})}"
    if "HX-Request" in request.headers:
        return HttpResponse(status=401, headers={"HX-Redirect": target})
    return HttpResponseRedirect(target)


def _remember(request: HttpRequest, response: HttpResponseBase, organization_id: str) -> None:
    """Remember the last visited organization in a cookie, which grants nothing."""
    if request.COOKIES.get(LAST_VISITED) != organization_id:
        remember(response, LAST_VISITED, organization_id)


def remember(response: HttpResponseBase, cookie: str, value: str) -> None:
    """Keep a visitor's preference in a cookie of the console."""
    response.set_cookie(
        cookie,
        value,
        max_age=_REMEMBERED,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
        path="/app/",
    )


def next_path(request: HttpRequest, otherwise: str) -> str:
    """Return the path on this site in `next`; `otherwise` if it is missing or leads elsewhere."""
    wanted = request.POST.get(NEXT) or request.GET.get(NEXT) or ""
    if len(wanted) <= MAX_NEXT and wanted.startswith("/") and url_has_allowed_host_and_scheme(wanted, None):
        return wanted
    return otherwise


# Attribute of views that can be opened by address.
OPENS: Final = "opens_by_address"


def nearest_page(path: str) -> str:
    """Return the path of the nearest page above a path; the console's home if there is none."""
    home = reverse("console:home")
    parts = path.rstrip("/").split("/")
    for length in range(len(parts) - 1, len(home.rstrip("/").split("/")), -1):
        above = "/".join(parts[:length])
        for candidate in (above, f"{above}/"):
            if _opens(candidate):
                return candidate
    return home


def _opens(path: str) -> bool:
    try:
        return bool(getattr(resolve(path).func, OPENS, False))
    except Resolver404:
        return False

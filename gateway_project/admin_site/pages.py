"""URLs of the admin: the framework's, without the pages that no document names.

Left out: the change of one's own password, which asks for no second factor and counts no try (the console's does); the
list of an app's tables; redirects to a row's page on the site, and from addresses of old.

The search is the gateway's own (`search.py`). Where `OPERATOR_SECOND_FACTOR` is on, an operator without a second factor
reaches only the page that adds one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, NoReturn

from django.conf import settings
from django.contrib import admin, messages
from django.http import Http404, HttpRequest, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import URLPattern, URLResolver, path, reverse

from apps.organizations.credentials import two_factor
from apps.organizations.models import User
from gateway_project.admin_site import search

_LEFT_OUT: Final = frozenset({"password_change", "password_change_done", "view_on_site"})
# Pages for an operator without a second factor: signing in and out, and the one that adds it.
_SIGN_IN_METHODS: Final = "organizations_twofactor_mine"
_BEFORE_SECOND_FACTOR: Final = frozenset({"login", "logout", "jsi18n", _SIGN_IN_METHODS})
# The framework resolves its address; no link leads there.
_APP_LIST: Final = "app_list"
_OLD_ADDRESS: Final = "<path:object_id>/"


def admin_urls() -> tuple[list[Any], str, str]:
    """Load the apps' pages; return the patterns, app name and namespace to mount."""
    admin.autodiscover()
    patterns, app_name, namespace = admin.site.urls
    own = path("find/", admin.site.admin_view(search.search_page), name="find")
    return _kept([own, *patterns]), app_name, namespace


def _kept(patterns: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for one in patterns:
        if isinstance(one, URLResolver):
            kept.append(URLResolver(one.pattern, _kept(one.url_patterns), one.default_kwargs))
        elif one.name == _APP_LIST:
            kept.append(URLPattern(one.pattern, _nothing, one.default_args, one.name))
        elif one.name == "search":
            results: Any = admin.site.admin_view(search.search_results)
            kept.append(URLPattern(one.pattern, _after_second_factor(results), one.default_args, one.name))
        elif one.name not in _LEFT_OUT and str(one.pattern) != _OLD_ADDRESS:
            view: Any = one.callback if one.name in _BEFORE_SECOND_FACTOR else _after_second_factor(one.callback)
            kept.append(URLPattern(one.pattern, view, one.default_args, one.name))
    return kept


def _after_second_factor(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Return the view for operators with a second factor; others are led to the page that adds one."""

    @wraps(view)
    def serve(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        user = request.user
        if settings.OPERATOR_SECOND_FACTOR and isinstance(user, User) and user.is_staff and not two_factor.is_on(user):
            messages.warning(request, "Add a passkey or an authenticator app first: operators need a second factor.")
            return HttpResponseRedirect(reverse(f"admin:{_SIGN_IN_METHODS}"))
        return view(request, *args, **kwargs)

    return serve


def _nothing(request: HttpRequest, **names: Any) -> NoReturn:
    raise Http404

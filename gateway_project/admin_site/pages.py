"""URLs of the admin: the framework's, without the pages that no document names.

Left out: the change of one's own password, which asks for no second factor and counts no try (the console's does); the
list of an app's tables; redirects to a row's page on the site, and from addresses of old.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

from django.contrib import admin
from django.http import Http404, HttpRequest
from django.urls import URLPattern, URLResolver

_LEFT_OUT: Final = frozenset({"password_change", "password_change_done", "view_on_site"})
# The framework resolves its address; no link leads there.
_APP_LIST: Final = "app_list"
_OLD_ADDRESS: Final = "<path:object_id>/"


def admin_urls() -> tuple[list[Any], str, str]:
    """Load the apps' pages; return the patterns, app name and namespace to mount."""
    admin.autodiscover()
    patterns, app_name, namespace = admin.site.urls
    return _kept(patterns), app_name, namespace


def _kept(patterns: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for one in patterns:
        if isinstance(one, URLResolver):
            kept.append(URLResolver(one.pattern, _kept(one.url_patterns), one.default_kwargs))
        elif one.name == _APP_LIST:
            kept.append(URLPattern(one.pattern, _nothing, one.default_args, one.name))
        elif one.name not in _LEFT_OUT and str(one.pattern) != _OLD_ADDRESS:
            kept.append(one)
    return kept


def _nothing(request: HttpRequest, **names: Any) -> NoReturn:
    raise Http404

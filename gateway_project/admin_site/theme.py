"""Settings of the admin's theme (`UNFOLD`). They are read with all others by every process, and so load no Django."""
# alone: the settings read it; the functions that it names load Django

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from django.http import HttpRequest


def _url_of(path: str) -> Callable[[HttpRequest], str]:
    """Return a function that returns the URL of a static file, for the theme to call when it shows a page."""

    def url(request: HttpRequest) -> str:
        from django.templatetags.static import static

        return static(path)

    return url


_NAVIGATION: Final = "gateway_project.admin_site.navigation"
UNFOLD: Final[dict[str, Any]] = {
    "SITE_TITLE": "Model gateway",
    "SITE_HEADER": "Model gateway",
    "DASHBOARD_CALLBACK": "gateway_project.admin_site.pages.dashboard",
    "STYLES": [_url_of("admin_site/admin_site.css")],
    "SCRIPTS": [
        _url_of("admin_site/admin_site.js"),
        _url_of("admin_site/alpine_components.js"),
        _url_of("admin_site/combobox_names.js"),
        _url_of("console/numbers.js"),
    ],
    "ACCOUNT": {"navigation": f"{_NAVIGATION}.account_links"},
    "SIDEBAR": {"show_search": True, "navigation": f"{_NAVIGATION}.groups"},
}

"""The nearest page above a path at which forms are taken and nothing is shown.

Somebody gets there by the address bar after a form, or by signing in again after their session ended in the middle of
one. Knows the route table. Must never decide what a page shows.
"""

from __future__ import annotations

from typing import Final

from django.urls import Resolver404, resolve, reverse

# Set on the views of pages that can be opened.
OPENS: Final = "opens_by_address"


def nearest_page(path: str) -> str:
    """Return the path of the page that is nearest above a path; the console's home where there is none."""
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

"""Finds the nearest page above a path that only accepts forms.

Visitors open such a path from the address bar after a form, or when they sign in again after their session ended.
"""

from __future__ import annotations

from typing import Final

from django.urls import Resolver404, resolve, reverse

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

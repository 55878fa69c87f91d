"""Readers of request headers: the bearer token, and whether a client prefers a page to data. Pure."""

from __future__ import annotations

from typing import Final

# Maximum characters; our tokens are shorter.
MAX_LENGTH = 512


def find_bearer(header: str | None) -> str | None:
    """Return the bearer token, or None if the header is absent, empty, too long, or has another scheme."""
    scheme, _, token = (header or "").strip().partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and 0 < len(token) <= MAX_LENGTH else None


_PAGE, _DATA = "text/html", "application/json"
# Characters of the header that are read: browsers send about two hundred.
_MAX_HEADER: Final = 1_000


def prefers_page(accept: str) -> bool:
    """Return whether `Accept` prefers pages to data. `*/*` alone, or an empty header, does not."""
    if _PAGE not in accept[:_MAX_HEADER]:
        return False
    weights = {_PAGE: 0.0, _DATA: 0.0}
    for stated in accept[:_MAX_HEADER].lower().split(","):
        name, *parameters = (part.strip() for part in stated.split(";"))
        if name in weights:
            weights[name] = next((_weight_of(one[2:]) for one in parameters if one.startswith("q=")), 1.0)
    return weights[_PAGE] > 0 and weights[_PAGE] >= weights[_DATA]


def _weight_of(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0

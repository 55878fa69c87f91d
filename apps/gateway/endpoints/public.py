"""Public endpoints: readable without an API key, refused to a wrong one: who presents a key learns that it works.

Knows whether a key is presented, and that it works. Must never know what is read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from django.http import HttpRequest, HttpResponse

from apps.gateway.access.policy import find_policy, invalidate
from apps.keys.api_key_header import find_presented_key

Rest = ParamSpec("Rest")
View = Callable[Concatenate[HttpRequest, Rest], HttpResponse]


def public_but_for_wrong_keys(view: View[Rest]) -> View[Rest]:
    """Return the view, which refuses a request that presents a key as the other endpoints would: 401 for one that is
    wrong, 410 for one of a project that is no more."""

    @wraps(view)
    def checked(request: HttpRequest, /, *args: Rest.args, **kwargs: Rest.kwargs) -> HttpResponse:
        if _presents_any(request):
            _check(find_presented_key(request.headers))
        return view(request, *args, **kwargs)

    return checked


def _presents_any(request: HttpRequest) -> bool:
    """Tell whether either header says anything; the word `Bearer` alone is what clients without a key send."""
    authorization = request.headers.get("authorization", "").strip()
    return bool(request.headers.get("x-api-key", "").strip()) or authorization.lower() not in ("", "bearer")


def _check(token: str) -> None:
    if not find_policy(token).is_current():
        # Revoked a moment ago, maybe: nothing is admitted here, which is how others find out.
        invalidate(token)
        find_policy(token)

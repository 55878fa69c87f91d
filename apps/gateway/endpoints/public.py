"""Public endpoints: readable without an API key, refused to a wrong one: who presents a key learns that it works."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Concatenate, ParamSpec

from django.http import HttpRequest, HttpResponse

from apps.gateway.access.policy import find_current_policy
from apps.gateway.client.http_request import ClientRequest
from apps.kernel.rest.envelopes import Family
from apps.kernel.rest.request_headers import KEY_HEADERS, find_presented_key
from apps.kernel.rest.routes import family_of

Rest = ParamSpec("Rest")
View = Callable[Concatenate[HttpRequest, Rest], HttpResponse]


def public_but_for_wrong_keys(view: View[Rest]) -> View[Rest]:
    """Return the view, which refuses a request that presents a key as the other endpoints would: 401 for one that is
    wrong, 410 for one of a project that is no more."""

    @wraps(view)
    def checked(request: HttpRequest, /, *args: Rest.args, **kwargs: Rest.kwargs) -> HttpResponse:
        query = request.META.get("QUERY_STRING", "") if family_of(request.path) is Family.GOOGLE else ""
        if _presents_any(request.headers, query):
            check_key(find_presented_key(request.headers, query))
        return view(request, *args, **kwargs)

    return checked


def _presents_any(headers: Mapping[str, str], query: str) -> bool:
    """Tell whether a header or the query says anything; the word `Bearer` alone is what clients without a key send."""
    said = {name: headers.get(name, "").strip() for name in KEY_HEADERS}
    is_bare = said["authorization"].lower() == "bearer"
    return "key=" in query or (any(said.values()) and not (is_bare and sum(map(bool, said.values())) == 1))


def check_key(token: str) -> None:
    """Raise as the other endpoints would for a key that is wrong (401), or of a project that is no more (410)."""
    find_current_policy(token)


def check_key_if_presented(request: ClientRequest) -> None:
    """Raise as `check_key` does for the key of a call to a model endpoint that presents one."""
    query = "key=" if request.route.family is Family.GOOGLE and request.query_parameter("key") else ""
    if _presents_any(request.headers(*KEY_HEADERS), query):
        check_key(request.presented_key)

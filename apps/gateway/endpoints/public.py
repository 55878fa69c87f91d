"""Public endpoints: readable without an API key, refused to a wrong one: who presents a key learns that it works."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec

from django.http import HttpRequest, HttpResponse

from apps.catalog import catalog_cache
from apps.catalog.views import OwnListing
from apps.gateway.access.credentials import CREDITS
from apps.gateway.access.policy import Policy, find_current_policy
from apps.gateway.client.http_request import ClientRequest
from apps.gateway.routing.availability import reach_of
from apps.gateway.routing.candidates import own_models
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
        _policy_of(request)
        return view(request, *args, **kwargs)

    return checked


def public_with_own_models(view: View[...]) -> View[...]:
    """Return the view of models as `public_but_for_wrong_keys` does.

    It gets the models of the own servers of the key's organization as `own`, None without a key or where there are
    none, and what the key can call as `find_reach`.
    """

    @wraps(view)
    def checked(request: HttpRequest, /, **parameters: Any) -> HttpResponse:
        policy = _policy_of(request)
        own = None if policy is None else own_listing(policy)
        return view(request, own=own, find_reach=partial(reach_of, policy), **parameters)

    return checked


def own_listing(policy: Policy) -> OwnListing | None:
    """Return the models of the own servers of a key's organization; None where it has none, or does not reach them."""
    credentials = (one for found in policy.own_credentials.values() for one in found)
    if policy.mode == CREDITS or not any(one.models for one in credentials):
        return None
    # The same until something of the organization changes.
    version = (policy.organization_id, policy.generation)
    return OwnListing(version, partial(own_models, policy, catalog_cache.current()))


def _policy_of(request: HttpRequest) -> Policy | None:
    """Return the policy of the key that a request presents; None if it presents none.

    Raises as `check_key_if_presented`.
    """
    query = request.META.get("QUERY_STRING", "") if family_of(request.path) is Family.GOOGLE else ""
    return (
        find_current_policy(find_presented_key(request.headers, query))
        if _presents_any(request.headers, query)
        else None
    )


def _presents_any(headers: Mapping[str, str], query: str) -> bool:
    """Tell whether a header or the query says anything; the word `Bearer` alone is what clients without a key send."""
    said = {name: headers.get(name, "").strip() for name in KEY_HEADERS}
    is_bare = said["authorization"].lower() == "bearer"
    return "key=" in query or (any(said.values()) and not (is_bare and sum(map(bool, said.values())) == 1))


def check_key_if_presented(request: ClientRequest) -> Policy | None:
    """Return the policy of the key that a call to a model endpoint presents; None if it presents none.

    Raises as the other endpoints would for a key that is wrong (401), or of a project that is no more (410).
    """
    query = "key=" if request.route.family is Family.GOOGLE and request.query_parameter("key") else ""
    if _presents_any(request.headers(*KEY_HEADERS), query):
        return find_current_policy(request.presented_key)
    return None

"""`POST /v1/route/explain`: which providers would be tried for a chat, in which order, and which not; none is called.

It reserves nothing, records nothing and costs nothing. Decisions come in the pipeline's order.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from apps.billing.discounts import shared_discounts
from apps.catalog import catalog_cache
from apps.catalog.catalog_cache import CatalogModel, Offer
from apps.gateway.access.credentials import credentials_for
from apps.gateway.access.policy import Policy, find_policy
from apps.gateway.admission import admit
from apps.gateway.admission.byte_budget import read_body
from apps.gateway.admission.worst_case import estimate_worst_case
from apps.gateway.canonical.chat import Chat
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.dialects.adapting.emulated_tools import emulate_tools
from apps.gateway.dialects.chat.openai import CLIENT
from apps.gateway.endpoints.answering import answer_authenticated, json_response
from apps.gateway.routing import preferences
from apps.gateway.routing.candidate import Candidate
from apps.gateway.routing.candidates import AUTO
from apps.gateway.routing.circuit_breaker import CIRCUIT_BREAKERS
from apps.gateway.routing.provider_limits import (
    explain_limited,
    find_limited_providers,
    find_rerouting_limits,
    is_limited,
)
from apps.gateway.routing.request_profile import profile_request
from apps.gateway.tasks import TASKS
from apps.gateway.upstream.call_provider import target_of
from apps.kernel.concurrency.native_thread_pool import offload
from apps.kernel.errors import InvalidRequest
from apps.kernel.money import plain
from apps.keys.iam import first_refusal
from apps.limits.applied import LimitRule

# Offers that are left out are named up to so many: `auto` leaves out nearly all there are.
_MAX_NAMED = 50


def route_explain(request: ClientRequest) -> ClientResponse:
    """Tell who would answer, and why."""

    def answer_for(token: str) -> ClientResponse:
        return json_response(msgspec.json.encode(explain(request, token)))

    return answer_authenticated(request, "route_explain", CLIENT, answer_for)


def explain(request: ClientRequest, token: str) -> dict[str, Any]:
    """Return the choice as `metadata` would tell it, and what led to it. Raises ApiError as the request would."""
    policy = find_policy(token)
    body, _ = read_body(request, policy.organization_id)
    chat = offload(len(body), CLIENT.read_request, body)
    profile = offload(len(body), profile_request, request, chat)
    catalog = catalog_cache.current()
    if not admit.is_current(policy, catalog, token):
        policy, catalog = find_policy(token), catalog_cache.current()
    shared = shared_discounts(catalog.generation)
    resolved = preferred = preferences.resolve_preferred(policy, catalog, chat, profile.prompt_tokens, shared)
    no_fallback = request.is_header_true("x-no-fallback")
    limited = find_limited_providers(policy.limits, resolved)
    is_bound = preferences.is_bound(resolved, chat, no_fallback=no_fallback)
    if limited and not is_bound:
        preferred = preferences.leave_out(resolved, partial(is_limited, limited))
    ranking, dropped_fields = preferences.choose_order(
        preferred,
        chat,
        profile,
        CIRCUIT_BREAKERS.stats,
        strict=request.is_header_true("x-strict"),
        no_fallback=no_fallback,
    )
    if preferred is not resolved:
        ranking = explain_limited(ranking, resolved, limited)
    rerouting = [] if is_bound or no_fallback else find_rerouting_limits(policy.limits, preferred)
    worst = estimate_worst_case(chat, preferred, profile.prompt_tokens)
    first = ranking.candidates[0]
    return {
        "object": "route.explanation",
        "requested_model": chat.model,
        "requested_provider": resolved.requested_provider,
        "used_model": first.model_id,
        "used_provider": first.provider_id,
        "underlying_used_model": first.model_name,
        **ranking.explanation,
        **({"rerouting": [{"limit": one.name, "models": one.reroutes_to} for one in rerouting]} if rerouting else {}),
        "order": [_place(one) for one in ranking.candidates],
        "warnings": [
            *msgspec.to_builtins(dropped_fields),
            *offload(len(body), _dropped_fields, chat, first, resolved.requested_provider),
        ],
        "excluded": _excluded(
            policy,
            catalog.models.get(first.model_id),
            chat,
            first,
            {one.mapping for one in preferred.eligible},
            limited if preferred is not resolved else [],
        ),
        "estimate": {"prompt_tokens": worst.prompt_tokens, "max_cost_usd": plain(worst.cost)},
    }


def _place(one: Candidate) -> dict[str, str]:
    place = {"provider": one.provider_id, "model": one.model_name, "mode": one.credential.mode}
    return place if one.credential.replica is None else {**place, "replica": one.credential.replica.name}


def _dropped_fields(chat: Chat, candidate: Candidate, named: str | None) -> list[dict[str, Any]]:
    """Return what would be left out for a candidate; all of it, where its format cannot say the request.

    Raises InvalidRequest where that is the provider that the client named.
    """
    dialect = TASKS[chat.task].find_dialect(chat, candidate.offer)
    target = target_of(candidate)
    try:
        if dialect is not None:
            dialect.write_request(emulate_tools(chat, dialect, target), target)
    except InvalidRequest as error:
        if candidate.provider_id == named:
            raise
        target.note_dropped(error.param or "messages", error.message)
    return [msgspec.to_builtins(one) for one in target.dropped_fields]


def _excluded(
    policy: Policy,
    model: CatalogModel | None,
    chat: Chat,
    first: Candidate,
    left: set[str],
    limited: Sequence[LimitRule],
) -> list[dict[str, str]]:
    """Return the first model's other offers, each with the first reason that speaks against it."""
    if model is None or chat.model == AUTO:
        return []
    offers = [one.edition(first.model_name) for one in model.offers if f"{one.provider.id}/{one.model_id}" not in left]
    edition = first.model_name if first.offer.is_edition else ""
    return [
        {"provider": one.provider.id, "reason": _reason(policy, chat, one, edition, limited)}
        for one in offers[:_MAX_NAMED]
    ]


def _reason(policy: Policy, chat: Chat, offer: Offer, edition: str, limited: Sequence[LimitRule]) -> str:
    limit = next((one for one in limited if one.covers(offer.model_id, offer.provider.id)), None)
    if limit is not None:
        return f'the limit "{limit.name}" is used up'
    if not offer.is_live(datetime.now(UTC).date()):
        return "not served any more, or switched off"
    if TASKS[chat.task].find_dialect(chat, offer) is None:
        return f"its format {offer.dialect} is not spoken"
    credentials = credentials_for(policy, offer.provider)
    if not credentials:
        return "no credential"
    rule = first_refusal(policy.rules, Candidate(offer, credentials[0], offer.model_name))
    if rule is not None:
        return f"access rule {rule.id} ({rule.type})"
    if edition and edition not in offer.own_names:
        return f"does not have {edition}"
    lacking = next((need for need in TASKS[chat.task].requirements_of(chat) if not need.is_met_by(offer)), None)
    if lacking is not None:
        return f"does not support {lacking.name}"
    return "too small for the prompt or the answer"

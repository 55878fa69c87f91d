"""Token counting: ask the provider that would answer for a prompt's token count, where it can; else estimate.

Knows whom to ask and how long to wait. It costs nothing and leaves no record. Must never know a wire format.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import Any

import gevent
import structlog
from msgspec.structs import replace

from apps.catalog import catalog_cache
from apps.gateway.access.pinned_address import pinned_ip
from apps.gateway.access.policy import Policy, find_policy
from apps.gateway.access.schemes import SignableRequest, authorize, fill_base_url
from apps.gateway.admission import admit
from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.client import loop_detection
from apps.gateway.dialects import find_dialect, headers_of
from apps.gateway.failures import StaleConnection, UpstreamFailure
from apps.gateway.guard.request_guard import RequestGuard
from apps.gateway.routing import candidates
from apps.gateway.routing.candidates import Candidate
from apps.gateway.routing.dialect_facts import facts_of
from apps.gateway.token_estimate import estimate_prompt_tokens
from apps.gateway.upstream import connection_pool
from apps.gateway.upstream.http_response import Timeouts, UpstreamResponse
from apps.gateway.upstream.remote_media import RemoteMedia
from apps.kernel.errors import ApiError
from apps.kernel.offload import offload

log = structlog.get_logger(__name__)

# Seconds for the whole question; an estimate now is worth more than a count later.
PATIENCE = 5.0
_MAX_BYTES = 64 * 1024


def count_tokens(policy: Policy, chat: Chat, token: str, size: int) -> int:
    """Return how many tokens a prompt of so many bytes has, at least about. Raises ApiError when the token is no longer
    good, and for what a guardrail blocks."""
    estimate = offload(size, partial(estimate_prompt_tokens, chat))
    catalog = catalog_cache.current()
    if not admit.is_current(policy, catalog, token):
        policy, catalog = find_policy(token), catalog_cache.current()
    if policy.guardrails is not None:
        # Who counts reads it all.
        RequestGuard(policy.guardrails, policy.retention).screen(chat, size)
    try:
        fitting = candidates.resolve(policy, catalog, chat, estimate).eligible
        asked = next((candidate for candidate in fitting if hasattr(_dialect_of(candidate), "count_request")), None)
        with gevent.Timeout(PATIENCE, UpstreamFailure("timeout", f"no count within {PATIENCE:g} s")):
            counted = None if asked is None else _ask(asked, chat, size)
    except (ApiError, UpstreamFailure) as failure:
        log.info("counting.estimated", error=type(failure).__name__)
        return estimate
    return estimate if counted is None else counted


def _dialect_of(candidate: Candidate) -> Any:
    """Return the format in which a provider counts: its own unless its data file says otherwise; not all can."""
    return find_dialect(candidate.offer.facts.get("count_dialect", candidate.offer.dialect))


def _asked_alone(chat: Chat) -> Chat:
    """Return the chat without what only concerns its answer: a format that lacks a word for it counts all the same."""
    return replace(chat, stream=False, max_tokens=None, stop=None, temperature=None, top_p=None, top_k=None)


def _ask(candidate: Candidate, chat: Chat, size: int) -> int | None:
    """Return a provider's count, or None when it has none to give. Raises UpstreamFailure, InvalidRequest."""
    dialect = _dialect_of(candidate)
    provider, credential = candidate.offer.provider, candidate.credential
    target = Target(
        model_name=candidate.model_name, facts=facts_of(candidate.offer), max_output=candidate.offer.max_output
    )
    chat = RemoteMedia().inline(_asked_alone(chat), dialect, target.facts)
    path, body = offload(size, partial(dialect.count_request, chat, target))
    secret, own = credential.secret(), credential.own is not None
    base_url = credential.base_url or fill_base_url(provider.auth, secret, provider.base_url, own=own)
    count_url = getattr(dialect, "count_url", None)
    url = base_url + path if count_url is None else str(count_url(base_url, path))
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json",
        "User-Agent": "model-gateway",
        **headers_of(dialect, chat, target),
    }
    if credential.base_url:
        headers[loop_detection.HEADER] = loop_detection.own_token()
    headers |= authorize(provider.auth, secret, SignableRequest("POST", url, headers, body))
    ip = pinned_ip(credential.base_url) if credential.base_url else None
    timeouts = Timeouts(connect=PATIENCE, first_byte=PATIENCE, idle=PATIENCE, total=PATIENCE, tick=PATIENCE)
    try:
        response = _send(url, headers, body, timeouts, ip)
    except StaleConnection:
        response = _send(url, headers, body, timeouts, ip, new_connection=True)
    try:
        counted = dialect.read_count(response.read(_MAX_BYTES)) if response.status == 200 else None
        return None if counted is None else int(counted)
    finally:
        response.close()


def _send(
    url: str, headers: dict[str, str], body: bytes, timeouts: Timeouts, ip: str | None, *, new_connection: bool = False
) -> UpstreamResponse:
    """Return the response once its head is there. Raises UpstreamFailure."""
    with closing(
        connection_pool.send("POST", url, headers, body, timeouts, ip, new_connection=new_connection)
    ) as sending:
        while True:
            try:
                next(sending)
            except StopIteration as done:
                response: UpstreamResponse = done.value
                return response

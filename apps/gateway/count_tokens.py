"""Token counting: ask the provider that would answer for a prompt's token count, where it can; else estimate.

A count costs nothing and leaves no record.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from uuid import UUID

import gevent
import structlog
from msgspec.structs import replace

from apps.catalog import catalog_cache
from apps.gateway.access.policy import Policy, find_policy
from apps.gateway.admission import admit
from apps.gateway.admission.worst_case import estimate_least
from apps.gateway.canonical.chat import Chat
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.dialects import ProviderDialect, find_dialect
from apps.gateway.dialects.adapting.emulated_tools import emulate_tools
from apps.gateway.failures import StaleConnection, UpstreamFailure
from apps.gateway.guard import outside_guard
from apps.gateway.guard.request_guard import RequestGuard
from apps.gateway.routing import preferences
from apps.gateway.routing.candidate import Candidate
from apps.gateway.token_estimate import estimate_prompt_tokens
from apps.gateway.upstream.call_provider import target_of
from apps.gateway.upstream.http_response import Timeouts
from apps.gateway.upstream.kept_files import inline_kept_files
from apps.gateway.upstream.open_exchange import OpenExchange, ProviderRequest, ProviderResponse, open_exchange
from apps.gateway.upstream.remote_media import RemoteMedia, has_addresses
from apps.guardrails.outside import RequestFacts
from apps.kernel.concurrency.native_thread_pool import offload
from apps.kernel.errors import ApiError

log = structlog.get_logger(__name__)

# Seconds for the whole question; an estimate now is worth more than a count later.
PATIENCE = 5.0
_MAX_BYTES = 64 * 1024


def count_tokens(policy: Policy, chat: Chat, token: str, body: bytes, reserve: Callable[[int], None]) -> int:
    """Return how many tokens the prompt of a body has, at least about. Raises ApiError when the token is no longer
    good, and for what a guardrail blocks. `reserve` gets the bytes of kept files before they are read."""
    size = len(body)
    chat = inline_kept_files(chat, policy, reserve)
    estimate = offload(size, partial(estimate_prompt_tokens, chat))
    catalog = catalog_cache.current()
    if not admit.is_current(policy, catalog, token):
        policy, catalog = find_policy(token), catalog_cache.current()
    if policy.guardrails is not None:
        # The counting provider reads the whole chat.
        facts = RequestFacts(str(policy.organization_id), str(policy.api_key_id), chat.model, "")
        guard = RequestGuard(policy.guardrails, policy.retention, facts)
        guard.screen(chat, body)
        if policy.guardrails.outside:
            outside_guard.screen_request(guard, chat, body)
            guard.finish()
    try:
        preferred = preferences.resolve_preferred(policy, catalog, chat, estimate)
        asked = next((one for one in preferred.eligible if _counts(one)), None)
        if asked is not None and has_addresses(chat):
            # A caller that could not ask a model gets no file fetched.
            least = estimate_least(chat, preferred, estimate, policy.retention)
            admit.check(policy, catalog, token, least, rate_family=None, free=False)
        with gevent.Timeout(PATIENCE, UpstreamFailure("timeout", f"no count within {PATIENCE:g} s")):
            counted = None if asked is None else _ask(asked, chat, size, policy.organization_id)
    except (ApiError, UpstreamFailure) as failure:
        log.info("counting.estimated", error=type(failure).__name__)
        return estimate
    return estimate if counted is None else counted


def _dialect_of(candidate: Candidate) -> ProviderDialect | None:
    """Return the format in which a provider counts: its own unless its data file says otherwise."""
    return find_dialect(candidate.offer.facts.get("count_dialect", candidate.offer.dialect))


def _counts(candidate: Candidate) -> bool:
    dialect = _dialect_of(candidate)
    return dialect is not None and dialect.token_counter is not None


def _asked_alone(chat: Chat) -> Chat:
    """Return the chat without what only concerns its answer: a format that lacks a word for it counts all the same."""
    return replace(chat, stream=False, max_tokens=None, stop=None, temperature=None, top_p=None, top_k=None)


def _ask(candidate: Candidate, chat: Chat, size: int, owner: UUID) -> int | None:
    """Return a provider's count, or None when it has none to give. Raises UpstreamFailure, InvalidRequest."""
    dialect, target = _dialect_of(candidate), target_of(candidate)
    if dialect is None or (counter := dialect.token_counter) is None:
        return None
    chat = RemoteMedia(owner).inline(_asked_alone(chat), dialect, target.facts)
    chat = emulate_tools(chat, dialect, target)
    path, body = offload(size, partial(counter.write_request, chat, target))
    request = ProviderRequest(
        dialect, chat, target, body, lambda base: base + path if counter.url is None else counter.url(base, path)
    )
    try:
        response = _open(candidate, request)
    except StaleConnection:
        response = _open(candidate, request, new_connection=True)
    try:
        return counter.read_count(response.read(_MAX_BYTES))
    finally:
        response.close()


def _open(candidate: Candidate, request: ProviderRequest, *, new_connection: bool = False) -> ProviderResponse:
    """Return the exchange once its head is there. Raises UpstreamFailure."""
    timeouts = Timeouts(connect=PATIENCE, first_byte=PATIENCE, idle=PATIENCE, total=PATIENCE, tick=PATIENCE)
    # A client that leaves meanwhile ends the wait soon.
    with closing(
        open_exchange(candidate, request, timeouts, ClientDisconnect(None), new_connection=new_connection)
    ) as opening:
        while True:
            try:
                next(opening)
            except StopIteration as done:
                opened: OpenExchange = done.value
                return opened.response

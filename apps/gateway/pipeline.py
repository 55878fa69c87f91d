"""The story of a request to a model, in order: who asks, what for, whether it may, who answers, what it cost.

Knows the order. Every decision lives in a module of its own; wire formats are the endpoint's; the answer is `run.py`'s.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from apps.billing.discounts import everyones
from apps.catalog import catalog_cache
from apps.gateway.access.policy import find_policy
from apps.gateway.admission import admit
from apps.gateway.admission.byte_budget import read_body
from apps.gateway.admission.worst_case import allowance_of, estimate_worst_case
from apps.gateway.answer_meter import AnswerMeter
from apps.gateway.canonical.chat import Chat
from apps.gateway.client.http_request import ClientRequest
from apps.gateway.client.loop_detection import read_cdn_loop
from apps.gateway.guard.request_guard import RequestGuard
from apps.gateway.response_cache import find_cache_entry
from apps.gateway.routing import candidates
from apps.gateway.routing.circuit_breaker import CIRCUIT_BREAKERS
from apps.gateway.routing.ranking import rank
from apps.gateway.routing.request_profile import profile_request
from apps.gateway.run import ChatRun
from apps.gateway.settlement import record, worker_lease
from apps.gateway.settlement.record_backlog import BACKLOG
from apps.gateway.upstream.failover import Failover
from apps.gateway.upstream.hedge import read_hedge
from apps.gateway.upstream.thought_signature_cache import ThoughtSignatureCache
from apps.kernel.errors import ApiError, Overloaded
from apps.kernel.ids import new_id
from apps.kernel.offload import offload

# Policy and catalog may change while a request is let in; more often than this in a row means something is wrong.
_MAX_READINGS = 5


def open_chat(call: ClientRequest, route: str, token: str, read_request: Callable[[bytes], Chat]) -> ChatRun:
    """Return an admitted request, ready to run. Raises ApiError; then nothing was reserved and nothing is recorded, but
    for a request that a guardrail blocks."""
    started_at = time.monotonic()
    worker_lease.start()
    BACKLOG.raise_if_backlogged()
    hops = read_cdn_loop(call)
    policy = find_policy(token)
    body, hold = read_body(call, policy.organization_id)
    chat = read_request(body)
    shape = offload(len(body), lambda: profile_request(call, chat))
    hedge = read_hedge(call, by_default=policy.hedging)
    identifier = new_id()
    for _ in range(_MAX_READINGS):
        catalog = catalog_cache.current()
        try:
            fitting = candidates.resolve(policy, catalog, chat, shape.prompt_tokens, everyones(catalog.generation))
        except ApiError:
            if admit.is_current(policy, catalog, token):
                raise
            policy = find_policy(token)
            continue
        ranking = rank(fitting, shape, CIRCUIT_BREAKERS.stats, no_fallback=call.is_header_true("x-no-fallback"))
        worst = estimate_worst_case(chat, fitting, shape.prompt_tokens, hedge, policy.retention)
        entry = record.open_entry(identifier, route, policy, call, chat)
        record.set_provider(entry, ranking.candidates[0], fitting.requested_provider)
        free = ranking.candidates[0].free
        admitted = admit.admit(policy, catalog, token, worst, entry, record.write_ahead_note(entry), free=free)
        if admitted is not None:
            allowance = allowance_of(chat, worst, admitted.hold, policy.retention)
            attempts = Failover(
                chat,
                ranking.candidates,
                call.watch_disconnect(),
                ThoughtSignatureCache(policy.project_id),
                strict=call.is_header_true("x-strict"),
                probe=ranking.probe,
                cdn_loop=hops,
                requested_provider=fitting.requested_provider,
                hedge=hedge,
                prompt_tokens=shape.prompt_tokens,
                limit_of=None if allowance is None else allowance.limit_of,
                size=len(body),
                hold_answer=hold.reserve_for_answer,
            )
            meter = AnswerMeter(attempts, policy, worst.prompt_tokens, admitted.hold, allowance)
            run = ChatRun(chat, policy, ranking, entry, attempts, meter, started_at, admitted)
            if policy.guardrails is not None:
                run.screen(RequestGuard(policy.guardrails, policy.retention), len(body))
            record.keep_request(entry, chat, policy.retention)
            if ranking.probe:
                CIRCUIT_BREAKERS.start_probe(ranking.candidates[0].mapping)
            model, named = ranking.candidates[0].model_id, fitting.requested_provider
            place = partial(
                find_cache_entry,
                policy.project_id,
                policy.cache_seconds,
                model,
                named,
                chat,
                attempts.client_disconnect,
            )
            run.cache = offload(len(body), place)
            return run
        policy = find_policy(token)
    raise Overloaded("The gateway's configuration is changing; try again shortly", retry_after=1)

"""The story of a request to a model, in order: who asks, what for, whether it may, who answers, what it cost.

Knows the order. Every decision lives in a module of its own; wire formats are the endpoint's; the answer is `run.py`'s.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from apps.billing.discounts import everyones
from apps.catalog import catalog_cache
from apps.gateway.access.policy import policy_of
from apps.gateway.admission import admit
from apps.gateway.admission.byte_budget import read_body
from apps.gateway.admission.worst_case import allowance_of, estimate
from apps.gateway.answer_meter import AnswerMeter
from apps.gateway.canonical.chat import Chat
from apps.gateway.client.http_request import Call
from apps.gateway.client.loop_detection import hops_of
from apps.gateway.guard.request_guard import Guard
from apps.gateway.response_cache import place_of
from apps.gateway.routing import candidates
from apps.gateway.routing.circuit_breaker import BOARD
from apps.gateway.routing.ranking import rank
from apps.gateway.routing.request_profile import shape_of
from apps.gateway.run import ChatRun
from apps.gateway.settlement import record, worker_lease
from apps.gateway.settlement.record_backlog import BACKLOG
from apps.gateway.upstream.failover import Attempts
from apps.gateway.upstream.hedge import hedge_of
from apps.gateway.upstream.thought_signature_cache import Seals
from apps.kernel.errors import ApiError, Overloaded
from apps.kernel.ids import new_id
from apps.kernel.offload import offload

# Policy and catalog may change while a request is let in; more often than this in a row means something is wrong.
_MAX_READINGS = 5


def open_chat(call: Call, route: str, token: str, read_request: Callable[[bytes], Chat]) -> ChatRun:
    """Return an admitted request, ready to run. Raises ApiError; then nothing was reserved and nothing is recorded, but
    for a request that a guardrail blocks."""
    started_at = time.monotonic()
    worker_lease.start()
    BACKLOG.insist_on_room()
    hops = hops_of(call)
    policy = policy_of(token)
    body, hold = read_body(call, policy.organization_id)
    chat = read_request(body)
    shape = offload(len(body), lambda: shape_of(call, chat))
    hedge = hedge_of(call, by_default=policy.hedging)
    identifier = new_id()
    for _ in range(_MAX_READINGS):
        catalog = catalog_cache.current()
        try:
            fitting = candidates.resolve(policy, catalog, chat, shape.prompt_tokens, everyones(catalog.generation))
        except ApiError:
            if admit.knew_the_latest(policy, catalog, token):
                raise
            policy = policy_of(token)
            continue
        ranking = rank(fitting, shape, BOARD.standing, no_fallback=call.switched_on("x-no-fallback"))
        worst = estimate(chat, fitting, shape.prompt_tokens, hedge, policy.retention)
        entry = record.open_entry(identifier, route, policy, call, chat)
        record.choose(entry, ranking.candidates[0], fitting.requested_provider)
        free = ranking.candidates[0].free
        admitted = admit.admit(policy, catalog, token, worst, entry, record.note_of(entry), free=free)
        if admitted is not None:
            allowance = allowance_of(chat, worst, admitted.hold, policy.retention)
            attempts = Attempts(
                chat,
                ranking.candidates,
                call.departure(),
                Seals(policy.project_id),
                strict=call.switched_on("x-strict"),
                probe=ranking.probe,
                hops=hops,
                named=fitting.requested_provider,
                hedge=hedge,
                prompt_tokens=shape.prompt_tokens,
                limit_of=None if allowance is None else allowance.limit_of,
                size=len(body),
                hold_answer=hold.take_of_answer,
            )
            meter = AnswerMeter(attempts, policy, worst.prompt_tokens, admitted.hold, allowance)
            run = ChatRun(chat, policy, ranking, entry, attempts, meter, started_at, admitted)
            if policy.guardrails is not None:
                run.screen(Guard(policy.guardrails, policy.retention), len(body))
            record.keep_request(entry, chat, policy.retention)
            if ranking.probe:
                BOARD.probing(ranking.candidates[0].mapping)
            model, named = ranking.candidates[0].model_id, fitting.requested_provider
            place = partial(place_of, policy.project_id, policy.cache_seconds, model, named, chat, attempts.departure)
            run.cache = offload(len(body), place)
            return run
        policy = policy_of(token)
    raise Overloaded("The gateway's configuration is changing; try again shortly", retry_after=1)

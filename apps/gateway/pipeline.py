"""Pipeline of a request to a model: authenticate it, read it, rank providers, reserve its worst case, screen it.

It holds the order of the steps: each decision has a module of its own, the endpoint has the wire format, and `run.py`
the answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from uuid import UUID

import gevent
import msgspec
from msgspec.structs import replace

from apps.billing.discounts import shared_discounts
from apps.catalog import catalog_cache
from apps.catalog.catalog_cache import Catalog
from apps.gateway.access.policy import Policy, find_current_policy, find_policy
from apps.gateway.admission import admit
from apps.gateway.admission.admit import AdmissionGrant, ProviderLimitReached, RerouteLimitReached
from apps.gateway.admission.byte_budget import read_body
from apps.gateway.admission.worst_case import WorstCase, allowance_of, estimate_least, estimate_worst_case
from apps.gateway.answer_meter import AnswerMeter
from apps.gateway.canonical.chat import Chat, DroppedField, Text
from apps.gateway.canonical.events import Failed, ReplyBuilder, Summary, TextDelta
from apps.gateway.client.client_disconnect import CancelSwitch
from apps.gateway.client.http_request import ROUTE as GUARD_ROUTE
from apps.gateway.client.http_request import ClientRequest, GuardModelCall, read_cdn_loop
from apps.gateway.dialects import client_dialect_of
from apps.gateway.guard import outside_guard
from apps.gateway.guard.request_guard import RequestGuard
from apps.gateway.guard.restoration import AnswerRestoration, restore_prompts
from apps.gateway.guard.tool_call_watch import ToolCallWatch, is_checked
from apps.gateway.metrics import RouteName
from apps.gateway.recorder import AnswerTranscript, Recorder
from apps.gateway.response_cache import CacheEntry, find_cache_entry, find_embedding_entry
from apps.gateway.routing import preferences
from apps.gateway.routing.candidate import Candidate
from apps.gateway.routing.candidates import Candidates
from apps.gateway.routing.circuit_breaker import CIRCUIT_BREAKERS
from apps.gateway.routing.provider_limits import explain_limited, is_limited
from apps.gateway.routing.ranking import Ranking, RequestProfile
from apps.gateway.routing.request_profile import named_session, profile_request, without_session
from apps.gateway.run import ChatRun
from apps.gateway.settlement import record
from apps.gateway.settlement.record_backlog import BACKLOG
from apps.gateway.tracing import tracer
from apps.gateway.tracing.request_trace import RequestTrace
from apps.gateway.upstream.batch_exchange import exchange_of
from apps.gateway.upstream.failover import Failover, Hedge, read_hedge
from apps.gateway.upstream.kept_files import inline_kept_files, names_kept_files
from apps.gateway.upstream.remote_media import RemoteMedia, fetch_addresses, has_image_addresses
from apps.gateway.upstream.thought_signature_cache import ThoughtSignatureCache
from apps.guardrails.outside import ModelAnswer, ModelRequest, RequestFacts
from apps.kernel.concurrency.native_thread_pool import offload
from apps.kernel.errors import ApiError, Overloaded
from apps.kernel.ids import new_id
from apps.kernel.money import ZERO
from apps.kernel.valkey.cache_store import CacheShare
from apps.limits.applied import MAX_APPLYING, Answerer, AppliedLimits, PolicyLimits
from apps.limits.plan_limits import MAX_PLAN_LIMITS
from apps.logs.entry import Entry

# The kinds of parts of a chat that names no file.
_TEXT = frozenset({Text})
# Policy and catalog may change while a request is let in; more often than this in a row means something is wrong.
_MAX_READINGS = 5
# Models that are tried instead of the requested one, and the kinds of requests that another model may answer.
_MAX_REROUTES, _REROUTED_TASKS = 8, frozenset({"chat", "completions"})


class _Admission(msgspec.Struct, frozen=True, kw_only=True):
    """An admitted request, and the decisions for it under the policy and the catalog of that moment."""

    policy: Policy
    # The provider that the client named.
    requested_provider: str | None
    ranking: Ranking
    worst: WorstCase
    entry: Entry
    granted: AdmissionGrant
    # The client's preferences that are not met, whichever provider answers.
    dropped_fields: list[DroppedField]
    # Whether nothing may be left out of the request.
    strict: bool
    # The limits that count the request; None without any.
    limits: AppliedLimits | None
    # The name of the limit beyond which another model than the requested one answers.
    rerouted_by: str | None = None


def open_chat(call: ClientRequest, route: RouteName, token: str, read_request: Callable[[bytes], Chat]) -> ChatRun:
    """Return an admitted request, ready to run. Raises ApiError; then nothing is reserved any more, and nothing was
    recorded unless the request had been admitted (a guardrail blocked it, or a defect broke it)."""
    started_at = time.monotonic()
    if not tracer.is_tracing():
        return _open(call, route, token, read_request, started_at, None)
    trace = tracer.begin_trace(call.route, started_at, call.header("traceparent"), call.header("tracestate"))
    try:
        return _open(call, route, token, read_request, started_at, trace)
    except ApiError as error:
        if trace is not None:
            tracer.refuse(trace, error)
        raise


def _open(
    call: ClientRequest,
    route: RouteName,
    token: str,
    read_request: Callable[[bytes], Chat],
    started_at: float,
    trace: RequestTrace | None,
) -> ChatRun:
    BACKLOG.raise_if_backlogged()
    cdn_loop = read_cdn_loop(call)
    policy = _find_policy(call, token)
    body, body_hold = read_body(call, policy.organization_id)
    chat = read_request(body)
    may_name_files = chat.image_request is not None or not chat.kinds <= _TEXT
    if may_name_files and (has_image_addresses(chat) or names_kept_files(chat)):
        policy, chat = _bring_files(call, token, policy, chat, body_hold.reserve)
    profile = offload(len(body), profile_request, call, chat)
    hedge = read_hedge(call, by_default=policy.hedging)
    try:
        admission = _admit(call, route, token, policy, chat, profile, hedge)
    except RerouteLimitReached as reached:
        admission = _reroute(call, route, token, policy, chat, profile, hedge, reached)
    policy, ranking, worst = admission.policy, admission.ranking, admission.worst
    allowance = allowance_of(chat, worst, admission.granted.hold, policy.retention)
    if trace is not None:
        trace.admitted_at = time.monotonic()
        trace.conversation_id = named_session(call)
    attempts = Failover(
        chat=chat,
        candidates=ranking.candidates,
        client_disconnect=call.watch_disconnect(),
        media=RemoteMedia(policy.organization_id),
        thought_signatures=ThoughtSignatureCache(policy.project_id, CacheShare.of(policy.organization_id, policy.plan)),
        strict=admission.strict,
        cdn_loop=cdn_loop,
        requested_provider=admission.requested_provider,
        probe=ranking.probe,
        hedge=hedge,
        prompt_tokens=profile.prompt_tokens,
        limit_of=None if allowance is None else allowance.limit_of,
        size=len(body),
        hold_answer=body_hold.reserve_for_answer,
        changed_fields=admission.dropped_fields,
        trace=trace,
        rerouted_by=admission.rerouted_by,
    )
    meter = AnswerMeter(
        attempts=attempts,
        policy=policy,
        prompt_estimate=worst.prompt_tokens,
        hold=admission.granted.hold,
        allowance=allowance,
    )
    guard = _find_guard(call, token, policy, profile, admission.entry.requested_model)
    recorder = _build_recorder(call, chat, admission, attempts, meter, guard, started_at)
    # The answer of a provider's batch API is paid for: it is billed, and no cached answer takes its place.
    may_be_kept = policy.cache_seconds and not is_settled_batch_line(call)
    cache = _prepare(recorder, body, partial(_find_entry, policy, attempts, chat) if may_be_kept else None)
    if ranking.probe:
        CIRCUIT_BREAKERS.start_probe(attempts.latest_candidate.mapping)
    restoration = None
    if guard is not None and guard.masked_values:
        restoration = AnswerRestoration(guard.masked_values, chat)
        chat = restore_prompts(chat, guard.masked_values) if chat.echo else chat
    return ChatRun(
        chat=chat,
        attempts=attempts,
        meter=meter,
        transcript=recorder.transcript,
        recorder=recorder,
        guard=guard,
        restoration=restoration,
        cache=cache,
        rate=admission.granted.rate,
    )


def ask_guard_model(call: ClientRequest, token: str, rule_id: str, request: ModelRequest) -> ModelAnswer:
    """Return a guard model's answer to a question about a client's request: a request of its own, with its own record.

    Raises ApiError. When the wait for it ends early, it ends as if its client had hung up.
    """
    switch = CancelSwitch()
    running = gevent.spawn(_run_guard_model, GuardModelCall(call, rule_id, request.body, switch), token)
    try:
        answer = running.get()
    except BaseException:
        switch.cancel()
        raise
    if isinstance(answer, ApiError):
        raise answer
    return answer


def _run_guard_model(call: GuardModelCall, token: str) -> ModelAnswer | ApiError:
    """Return the error instead of raising it: a greenlet that fails would print it."""
    text, cost = [], ZERO
    try:
        run = open_chat(call, GUARD_ROUTE, token, client_dialect_of("openai").read_request)
        for event in run.events():
            match event:
                case TextDelta():
                    text.append(event.text)
                case Summary():
                    cost = event.cost["total"]
                case Failed():
                    return event.error
        return ModelAnswer("".join(text).encode("utf-8", "replace"), cost, str(run.recorder.entry.id))
    except ApiError as error:
        return error
    finally:
        call.release_bytes()


def _find_policy(call: ClientRequest, token: str) -> Policy:
    """Return the policy that a request is decided by. Raises Unauthenticated, Gone, Overloaded."""
    return find_current_policy(token).for_guard_model() if call.is_guard_model_call else find_policy(token)


def _bring_files(
    call: ClientRequest, token: str, policy: Policy, chat: Chat, reserve: Callable[[int], None]
) -> tuple[Policy, Chat]:
    """Return the chat with the files that it names, and the policy that allows it. Raises ApiError.

    The caller's limits and credits are looked at first: who has none left has nothing fetched or read.
    """
    if not is_settled_batch_line(call):
        policy = _check(call, token, policy, chat)
    if has_image_addresses(chat):
        with closing(call.watch_disconnect()) as client_disconnect:
            chat = fetch_addresses(chat, policy.organization_id, client_disconnect)
    return policy, inline_kept_files(chat, policy, reserve)


def _check(call: ClientRequest, token: str, policy: Policy, chat: Chat) -> Policy:
    """Return the current policy. Raises ApiError for a request that is refused whatever its files contain."""
    # This check needs no file; without messages every provider remains that may be asked with them.
    known = replace(chat, messages=[])
    for _ in range(_MAX_READINGS):
        catalog = catalog_cache.current()
        preferred = _resolve(policy, catalog, token, known, 0)
        try:
            if preferred is not None and admit.check(
                policy,
                catalog,
                token,
                estimate_least(known, preferred, 0, policy.retention),
                rate_family=call.route.rate_family,
                free=all(candidate.free for candidate in preferred.eligible),
                limits=_find_limits(call, policy.limits, chat, preferred.eligible, new_id()),
            ):
                return policy
        except (ProviderLimitReached, RerouteLimitReached):
            # Another provider or model may answer: admission decides.
            return policy
        policy = _find_policy(call, token)
    raise _changing()


def _resolve(policy: Policy, catalog: Catalog, token: str, chat: Chat, prompt_tokens: int) -> Candidates | None:
    """Return who may answer; None when policy or catalog have changed and must be read again. Raises ApiError."""
    try:
        return preferences.resolve_preferred(policy, catalog, chat, prompt_tokens, shared_discounts(catalog.generation))
    except ApiError:
        if admit.is_current(policy, catalog, token):
            raise
        return None


def _changing() -> Overloaded:
    return Overloaded("The gateway's configuration is changing; try again shortly", retry_after=1)


def _find_guard(
    call: ClientRequest, token: str, policy: Policy, profile: RequestProfile, model: str
) -> RequestGuard | None:
    """Return the guardrails of a request, None without any."""
    if policy.guardrails is None:
        return None
    # A provider's batch is answered hours later: the placeholders must follow from the line alone.
    share = None if call.batch_exchange is not None else CacheShare.of(policy.organization_id, policy.plan)
    session = profile.session or call.conversation_id or ""
    facts = RequestFacts(str(policy.organization_id), str(policy.api_key_id), model, session)
    return RequestGuard(policy.guardrails, policy.retention, facts, share, partial(ask_guard_model, call, token))


def _build_recorder(
    call: ClientRequest,
    chat: Chat,
    admission: _Admission,
    attempts: Failover,
    meter: AnswerMeter,
    guard: RequestGuard | None,
    started_at: float,
) -> Recorder:
    """Return what records the request, with the transcript that it is recorded by."""
    policy, entry = admission.policy, admission.entry
    is_needed_whole = not chat.stream or policy.retention == "retain"
    watch = None
    if guard is not None and is_checked(guard, chat):
        watch = ToolCallWatch(guard, chat, named_session(call), call.stated_effects)
    transcript = AnswerTranscript(
        attempts=attempts,
        prompt_estimate=admission.worst.prompt_tokens,
        fold=ReplyBuilder() if is_needed_whole else None,
        log_id=entry.id,
        keeps_content=policy.retention == "retain",
        call_watch=watch,
    )
    return Recorder(
        chat=chat,
        policy=policy,
        ranking=admission.ranking,
        entry=entry,
        attempts=attempts,
        meter=meter,
        transcript=transcript,
        guard=guard,
        started_at=started_at,
        limits=admission.limits,
        warned=admission.granted.warned,
    )


def _admit(
    call: ClientRequest,
    route: RouteName,
    token: str,
    policy: Policy,
    chat: Chat,
    profile: RequestProfile,
    hedge: Hedge | None,
    rerouted: Chat | None = None,
) -> _Admission:
    """Rank the providers and reserve the worst case under the current policy and catalog: when either has changed since
    it was read, it is read again.

    `rerouted` is the chat with the model that answers instead of the requested one. Raises ApiError,
    RerouteLimitReached.
    """
    asked = rerouted or chat
    identifier, strict = call.log_id or new_id(), call.is_header_true("x-strict")
    no_fallback = call.is_header_true("x-no-fallback")
    limited = [] if policy.limits is None else policy.limits.used_up_at((identifier.int >> 80) / 1000)
    for _ in range(_MAX_READINGS + MAX_APPLYING + MAX_PLAN_LIMITS):
        catalog = catalog_cache.current()
        resolved = preferred = _resolve(policy, catalog, token, asked, profile.prompt_tokens)
        if resolved is None or preferred is None:
            policy = _find_policy(call, token)
            continue
        is_bound = preferences.is_bound(resolved, asked, no_fallback=no_fallback)
        if limited and not is_bound:
            preferred = preferences.leave_out(resolved, partial(is_limited, limited))
        ranking, dropped_fields = preferences.choose_order(
            preferred,
            asked,
            profile,
            CIRCUIT_BREAKERS.stats,
            strict=strict,
            no_fallback=no_fallback,
        )
        if preferred is not resolved:
            ranking = explain_limited(ranking, resolved, limited)
        if call.batch_exchange is not None:
            ranking = exchange_of(call.batch_exchange).direct(ranking, chat)
        first, named = ranking.candidates[0], resolved.requested_provider
        worst = estimate_worst_case(asked, preferred, profile.prompt_tokens, hedge, policy.retention)
        entry = record.open_entry(identifier, route, policy, call, chat)
        record.set_provider(entry, first, named)
        candidates = ranking.candidates if is_bound else preferred.eligible
        limits = _find_limits(call, policy.limits, chat, candidates, identifier)
        if is_settled_batch_line(call):
            granted: AdmissionGrant | None = AdmissionGrant()
        else:
            try:
                granted = admit.admit(
                    policy,
                    catalog,
                    token,
                    worst,
                    entry,
                    record.write_ahead_note(entry),
                    rate_family=call.route.rate_family,
                    free=first.free,
                    limits=limits,
                )
            except ProviderLimitReached as reached:
                limited = [*limited, reached.limit.rule]
                continue
            except RerouteLimitReached as reached:
                if is_bound or no_fallback or not _may_be_rerouted(call, chat):
                    raise reached.refusal from None
                raise
        if granted is not None:
            return _Admission(
                policy=policy,
                requested_provider=named,
                ranking=ranking,
                worst=worst,
                entry=entry,
                granted=granted,
                dropped_fields=dropped_fields,
                strict=strict or preferences.requires_parameters(chat),
                limits=limits,
            )
        policy = _find_policy(call, token)
    raise _changing()


def _may_be_rerouted(call: ClientRequest, chat: Chat) -> bool:
    """Return whether another model may answer: a chat, which is no guard's question and no line of a provider's batch.

    Vectors, images and voices of another model are not what its client can use.
    """
    return chat.task in _REROUTED_TASKS and call.batch_exchange is None and not call.is_guard_model_call


def _reroute(
    call: ClientRequest,
    route: RouteName,
    token: str,
    policy: Policy,
    chat: Chat,
    profile: RequestProfile,
    hedge: Hedge | None,
    reached: RerouteLimitReached,
) -> _Admission:
    """Admit a request with the first model of a used-up limit's list that can answer it and whose own limits cover it.

    Where another limit that reroutes does not cover one of these, its models follow. Raises the first limit's refusal
    where there is none.
    """
    names, limit, wishes = list(reached.limit.rule.reroutes_to), reached.limit.rule.name, chat.preferences
    for name in names:
        asked = replace(chat, model=name, preferences=None if wishes is None else replace(wishes, models=()))
        try:
            admission = _admit(call, route, token, policy, chat, profile, hedge, asked)
        except RerouteLimitReached as other:
            more = [one for one in other.limit.rule.reroutes_to if one not in names]
            names += more[: _MAX_REROUTES - len(names)]
        except ApiError:
            # The model is unknown, not allowed, too small, or beyond a limit of its own.
            continue
        else:
            explanation = {**admission.ranking.explanation, "rerouted": {"limit": limit, "model": name}}
            ranking = replace(admission.ranking, explanation=explanation)
            return replace(admission, ranking=ranking, rerouted_by=limit)
    raise reached.refusal from None


def _find_limits(
    call: ClientRequest,
    limits: PolicyLimits | None,
    chat: Chat,
    candidates: Sequence[Candidate],
    identifier: UUID,
) -> AppliedLimits | None:
    """Return the limits that hold for a request that any of these candidates may answer, None without any; the time in
    its id decides the windows."""
    if limits is None:
        return None
    answerers: tuple[Answerer, ...] = ()
    if limits.names_answerers:
        answerers = tuple([(one.model_id, one.provider_id) for one in candidates])
    end_user = _end_user_of(call, chat) if limits.names_end_users else None
    return limits.find(answerers, end_user, (identifier.int >> 80) / 1000)


def _end_user_of(call: ClientRequest, chat: Chat) -> str | None:
    """Return the end user that a request names: the header `x-end-user-id`, else the body's `safety_identifier`,
    `user` or `metadata.user_id`."""
    stated = call.header("x-end-user-id") or (chat.extra or {}).get("safety_identifier") or chat.user
    return without_session(stated) if isinstance(stated, str) and stated else None


def _find_entry(policy: Policy, attempts: Failover, chat: Chat) -> CacheEntry | None:
    """Return a request's cache entry, input by input for embeddings; None for a request that is never cached."""
    share = CacheShare.of(policy.organization_id, policy.plan)
    first, named = attempts.latest_candidate, attempts.requested_provider
    if first.offer.is_edition:
        # Its answers are not those of the model's other editions.
        named = f"{named or ''}/{first.model_name}"
    asked = first.model_id, named, chat, attempts.client_disconnect
    if chat.embedding is None:
        return find_cache_entry(policy.project_id, share, policy.cache_seconds, *asked)
    is_of_one_model = len({candidate.model_id for candidate in attempts.candidates}) == 1
    return find_embedding_entry(policy.project_id, share, policy.cache_seconds, *asked, is_of_one_model=is_of_one_model)


def is_settled_batch_line(call: ClientRequest) -> bool:
    """Return whether a provider's batch API has answered already: the line was admitted, with its hold, when it was
    handed over."""
    return call.batch_exchange is not None and call.batch_exchange.is_settled


def _prepare(recorder: Recorder, body: bytes, find_entry: Callable[[], CacheEntry | None] | None) -> CacheEntry | None:
    """Scan a request with guardrails, which may mask it; keep the result for the log; return its answer's cache entry,
    where answers are kept. Raises ApiError; then the request is recorded and its reservation settled."""
    try:
        if recorder.guard is not None:
            recorder.guard.screen(recorder.chat, body)
            if recorder.guard.compiled.outside:
                outside_guard.screen_request(recorder.guard, recorder.chat, body)
        offload(len(body), record.keep_request, recorder.entry, recorder.chat, recorder.policy.retention)
        return None if find_entry is None else offload(len(body), find_entry)
    except ApiError as error:
        recorder.fail(error)
        raise
    except Exception as error:
        raise recorder.fail_unexpectedly() from error

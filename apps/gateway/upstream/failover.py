"""Failover and hedging: call one candidate after another, with retries and backoff, until one begins to answer.

Hedging, which a client (`X-Hedge`) or a project opts in to for streams, calls a second provider when the first is later
than usual: the first to answer wins, the other is closed. The loser's prompt is paid for, so a second call is only made
when that costs no more than a cap.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import chain
from typing import TYPE_CHECKING, Any

import gevent
import msgspec
from django.conf import settings

from apps.billing.pricing import Cost
from apps.gateway.access import credentials
from apps.gateway.canonical.chat import MAX_RETRIES, Chat, DroppedField, asked_region, asked_service_tier
from apps.gateway.canonical.events import Event, Waiting
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.client.http_request import ClientRequest
from apps.gateway.failures import StaleConnection, UpstreamFailure
from apps.gateway.metrics import ATTEMPTS, add, labeled_child, provider_label
from apps.gateway.routing import replica_choice
from apps.gateway.routing.candidate import Candidate
from apps.gateway.routing.circuit_breaker import CIRCUIT_BREAKERS, FailureEvidence, evidence_of
from apps.gateway.tasks import TASKS
from apps.gateway.tracing.request_trace import Callee, RequestTrace
from apps.gateway.upstream import replica_watch
from apps.gateway.upstream.call_provider import ProviderCall
from apps.gateway.upstream.open_exchange import ProviderCallInputs
from apps.gateway.upstream.remote_media import RemoteMedia
from apps.gateway.upstream.thought_signature_cache import ThoughtSignatureCache
from apps.kernel.errors import ApiError, InvalidRequest
from apps.kernel.usage import Usage

# USD that a second call may add to a request, where the client names no other cap, and the most it can name.
USUAL_CAP, HIGHEST_CAP = Decimal("0.01"), Decimal(10)
# Seconds: the shortest time after which a second provider is asked, and the longest that a client can name.
_SOONEST, _LATEST = 0.05, 120.0
_WORDS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Hedge:
    """After how many seconds a second provider is asked (None: when the first is later than its usual 95th percentile),
    and what that may add in USD."""

    after: float | None
    max_cost: Decimal = USUAL_CAP

    def delay(self, p95_latency: float | None) -> float | None:
        """Return the seconds to wait, given the first's usual latest in milliseconds; None when unknown."""
        if self.after is not None:
            return self.after
        return None if p95_latency is None else max(p95_latency / 1000, _SOONEST)

    def allows(self, candidate: Candidate, prompt_tokens: int, chat: Chat) -> bool:
        """Return whether losing the race costs no more than the cap with this candidate."""
        return losing_cost(candidate, prompt_tokens, chat).total <= self.max_cost


def losing_cost(candidate: Candidate, prompt_tokens: int, chat: Chat) -> Cost:
    """Return what a call costs that was closed before its first token: the prompt has been read, at the tier asked."""
    tier, region = asked_service_tier(chat), asked_region(chat)
    return candidate.cost_of(Usage(input=prompt_tokens, service_tier=tier, region=region))


def read_hedge(request: ClientRequest, *, by_default: bool) -> Hedge | None:
    """Return how a request is to be hedged, None when it is not. Raises InvalidRequest naming the header.

    `X-Hedge` is `true`, `false`, or milliseconds; `X-Hedge-Max-Cost` is USD.
    """
    said = (request.header("x-hedge") or "").strip().lower()
    wanted = _WORDS.get(said, by_default if not said else None)
    if wanted is False:
        return None
    after = None if wanted else _number(said, "X-Hedge", Decimal(1000 * _LATEST).to_integral_value()) / 1000
    max_cost = request.header("x-hedge-max-cost")
    most = USUAL_CAP if max_cost is None else _number(max_cost, "X-Hedge-Max-Cost", HIGHEST_CAP)
    return Hedge(None if after is None else max(float(after), _SOONEST), most)


def _number(text: str, name: str, most: Decimal) -> Decimal:
    try:
        value = Decimal(text.strip())
    except InvalidOperation:
        value = Decimal(-1)
    if not value.is_finite() or not 0 <= value <= most:
        raise InvalidRequest(f"{name}: must be a number from 0 to {most}", code="invalid_parameters", param=name)
    return value


if TYPE_CHECKING:
    _Run = gevent.Greenlet[..., Any]


def race(
    first: ProviderCall,
    find_second: Callable[[], ProviderCall | None],
    delay: float,
    client_disconnect: ClientDisconnect,
    on_failure: Callable[[ProviderCall, UpstreamFailure | InvalidRequest], None],
) -> Iterator[ProviderCall | Event]:
    """Yield `Waiting` until an attempt answers, then the attempt that won, then its events.

    `on_failure` is called with one that fails while another runs. Raises what the last one running failed with.
    """
    runs: dict[_Run, ProviderCall] = {gevent.spawn(_run_to_first_content, first): first}
    second_at: float | None = time.monotonic() + delay
    silent_until = time.monotonic() + settings.HEARTBEAT_INTERVAL
    try:
        while True:
            wake_at = silent_until if second_at is None else min(silent_until, second_at)
            patience = max(wake_at - time.monotonic(), 0.0)
            with client_disconnect.raise_while_waiting():
                done = gevent.wait(list(runs), timeout=patience, count=1)
            if done:
                provider_call, outcome = runs.pop(done[0]), done[0].get()
                if not isinstance(outcome, Exception):
                    _kill_all(runs)
                    yield provider_call
                    yield from outcome
                    return
                if not runs or not isinstance(outcome, UpstreamFailure | InvalidRequest):
                    raise outcome
                on_failure(provider_call, outcome)
            elif second_at is not None and time.monotonic() >= second_at:
                second_at = None
                second = find_second()
                if second is not None:
                    runs[gevent.spawn(_run_to_first_content, second)] = second
            elif time.monotonic() >= silent_until:
                silent_until += settings.HEARTBEAT_INTERVAL
                yield Waiting()
    finally:
        _kill_all(runs)


def _run_to_first_content(provider_call: ProviderCall) -> Iterator[Event] | Exception:
    """Run an attempt to its first content; return all of its events, or what it failed with."""
    try:
        events = provider_call.events()
        for event in events:
            if not isinstance(event, Waiting):
                return _prepend(event, events)
    except (UpstreamFailure, ApiError) as failure:
        return failure
    except Exception as error:  # noqa: BLE001 - raised again in the waiting greenlet
        return error
    return iter(())


def _prepend(first: Event, rest: Iterator[Event]) -> Iterator[Event]:
    yield first
    yield from rest


def _kill_all(runs: dict[_Run, ProviderCall]) -> None:
    """End those who are still running: their providers' connections are closed on the way out."""
    gevent.killall(list(runs), timeout=1)
    runs.clear()


def count_attempt(candidate: Candidate, outcome: str) -> None:
    """Count how a call of a provider ended."""
    add(labeled_child(ATTEMPTS, provider_label(candidate.provider_id), outcome))


def attempt_entry(candidate: Candidate, status: int | None, error_type: str, *, succeeded: bool) -> dict[str, Any]:
    """Return the line of the log's routing metadata that tells of a call."""
    return {
        "provider": candidate.provider_id,
        "model": candidate.model_name,
        "status_code": status,
        "error_type": error_type,
        "succeeded": succeeded,
        **({} if candidate.credential.replica is None else {"replica": candidate.credential.replica.name}),
    }


class AttemptEnd(msgspec.Struct, frozen=True, eq=False):
    """The call behind a line of the attempt log, and its end on the monotonic clock: None while it answers."""

    call: ProviderCall
    ended_at: float | None

    def details(self, begun_at: float, now: float) -> dict[str, Any]:
        """Return the catalog's name of the model, and the times that the call reached in milliseconds since
        `begun_at`."""
        outcome = self.call.outcome
        moments = {
            "start_ms": self.call.started_at,
            "connect_start_ms": outcome.connect_started_at,
            "connect_end_ms": outcome.connected_at,
            "first_byte_ms": outcome.headers_at,
            "first_content_ms": outcome.first_content_at,
            "end_ms": now if self.ended_at is None else self.ended_at,
        }
        times = {name: round((moment - begun_at) * 1000) for name, moment in moments.items() if moment is not None}
        return {"used_model": self.call.inputs.candidate.model_id, **times}


def callee_of(candidate: Candidate) -> Callee:
    """Return whom a trace names for a candidate."""
    return Callee(
        candidate.provider_id, candidate.model_name, candidate.credential.base_url or candidate.offer.provider.base_url
    )


def end_attempt(call: ProviderCall, error_type: str) -> None:
    """End the span of a failed call, where the request is traced."""
    if call.inputs.span is not None:
        call.inputs.span.span.finish(error_type)


_BACKOFF_BASE, _BACKOFF_CAP = 0.1, 2.0
# Seconds that a provider has to show that it works again.
PROBE_PATIENCE = 5.0


class Failover(msgspec.Struct, eq=False):
    """The calls of one request: the answering candidate, the attempts, and the time of the first content."""

    chat: Chat
    candidates: tuple[Candidate, ...]
    client_disconnect: ClientDisconnect
    media: RemoteMedia
    thought_signatures: ThoughtSignatureCache | None = None
    strict: bool = False
    # The deployments that the request has passed (`http_request.py`).
    cdn_loop: str = ""
    # The provider that the client named: a request that its format lacks fields for is refused, and not sent to
    # another.
    requested_provider: str | None = None
    # Whether the first candidate is a circuit breaker's probe.
    probe: bool = False
    attempt_log: list[dict[str, Any]] = []
    # One for each line of it.
    attempt_ends: list[AttemptEnd] = []
    failure_evidence: list[FailureEvidence] = []
    # Whether a second provider is asked when the first is late, for a prompt of about so many tokens.
    hedge: Hedge | None = None
    prompt_tokens: int = 0
    # The limit of an answer that the hold covers, in tokens, by candidate; None where nothing has to be limited.
    limit_of: Callable[[Candidate], int | None] | None = None
    # Changes to the answer that the client should know of.
    changed_fields: list[DroppedField] = []
    # Bytes of the client's body, and the callback for those of a large answer.
    size: int = 0
    hold_answer: Callable[[int], object] | None = None
    # The candidate that lost a hedging race, whose call was closed.
    hedge_loser: Candidate | None = None
    # None where the request is not traced.
    trace: RequestTrace | None = None
    # The call that answers, or was made last.
    current_call: ProviderCall | None = None
    # The name of the limit beyond which another model than the requested one answers.
    rerouted_by: str | None = None

    @property
    def latest_candidate(self) -> Candidate:
        """The candidate that answers, or was asked last, or would be asked first."""
        return self.current_call.inputs.candidate if self.current_call else self.candidates[0]

    @property
    def answering(self) -> bool:
        """Whether an answer has begun."""
        return self.current_call is not None and self.current_call.outcome.has_content

    @property
    def first_content_at(self) -> float | None:
        """When the answer began, on the monotonic clock."""
        return self.current_call.outcome.first_content_at if self.current_call else None

    @property
    def bytes_received(self) -> int:
        """Bytes of the answer."""
        return self.current_call.outcome.bytes_received if self.current_call else 0

    @property
    def dropped_fields(self) -> list[DroppedField]:
        """The fields left out of the answered request, or set in it, and changes to the answer."""
        if self.current_call is None:
            return self.changed_fields
        outcome = self.current_call.outcome
        if not (outcome.changed_fields or self.changed_fields):
            return outcome.dropped_fields
        return [*outcome.dropped_fields, *outcome.changed_fields, *self.changed_fields]

    def timed_attempts(self, begun_at: float) -> list[dict[str, Any]]:
        """Return the attempts with their times in milliseconds since `begun_at`: what the log keeps of them."""
        now = time.monotonic()
        pairs = zip(self.attempt_log, self.attempt_ends, strict=True)
        return [{**line, **end.details(begun_at, now)} for line, end in pairs]

    def note_canceled(self) -> None:
        """Write down the call that was still awaited when the client left."""
        call = self.current_call
        if call is not None and all(end.call is not call for end in self.attempt_ends):
            self._log(call, attempt_entry(call.inputs.candidate, call.outcome.status, "canceled", succeeded=False))

    def _log(self, call: ProviderCall, *lines: dict[str, Any], is_over: bool = True) -> None:
        """Add a call's lines to the attempt log."""
        end = AttemptEnd(call, time.monotonic() if is_over else None)
        self.attempt_log += lines
        self.attempt_ends += [end] * len(lines)

    @property
    def json_repaired(self) -> bool:
        """Whether the answer's JSON had to be put right."""
        repair = None if self.current_call is None else self.current_call.outcome.json_repair
        return repair is not None and repair.repaired

    def run(self) -> Iterator[Event]:
        """Yield the events of the first candidate that answers. Raises ApiError when none does, ClientGone."""
        queue = deque(self.candidates)
        failed: ApiError | None = None
        # Retries in all, and of the current model.
        retries = of_model = 0
        self.current_call = self._begin_call(queue, first_byte_timeout=PROBE_PATIENCE if self.probe else None)
        while True:
            try:
                answer = yield from self._await_answer(queue)
                yield from answer
                return
            except UpstreamFailure as failure:
                provider_call = self.current_call
                self._log_failure(provider_call, failure)
                if isinstance(failure, StaleConnection) and not provider_call.inputs.new_connection:
                    # A kept-alive connection was closed: neither the provider's fault nor one of the retries.
                    self.current_call = self._begin_call(
                        deque((provider_call.inputs.candidate,)),
                        provider_call.inputs.first_byte_timeout,
                        new_connection=True,
                    )
                    continue
                failed = failure.as_error(provider_call.inputs.candidate.provider_id)
                self._drop_provider(queue, provider_call.inputs.candidate, failure)
                if not failure.retryable or of_model == self._retries_of_model:
                    _drop_model(queue, provider_call.inputs.candidate)
                if provider_call.outcome.has_content or not queue or retries == MAX_RETRIES:
                    raise failed from failure
                with self.client_disconnect.raise_while_waiting():
                    gevent.sleep(backoff(retries, failure.retry_after))
            except InvalidRequest:
                # This provider's format lacks a field of the request; it was not called. Another's may have it.
                end_attempt(self.current_call, "not_expressible")
                self._drop_provider(queue, self.current_call.inputs.candidate, None)
                if self._is_named(self.current_call) or of_model == self._retries_of_model:
                    _drop_model(queue, self.current_call.inputs.candidate)
                if not queue or retries == MAX_RETRIES:
                    if failed is not None:
                        raise failed from None
                    raise
            retries += 1
            asked = self.current_call.inputs.candidate.model_id
            self.current_call = self._begin_call(queue)
            of_model = of_model + 1 if self.current_call.inputs.candidate.model_id == asked else 0

    def _begin_call(
        self, queue: deque[Candidate], first_byte_timeout: float | None = None, *, new_connection: bool = False
    ) -> ProviderCall:
        candidate = queue.popleft()
        if candidate.credential.replica is not None:
            candidate = replica_choice.choose(candidate, queue, self.chat)
            replica_watch.watch(candidate)
        inputs = ProviderCallInputs(
            span=None if self.trace is None else self.trace.begin_attempt(callee_of(candidate)),
            chat=self.chat,
            candidate=candidate,
            client_disconnect=self.client_disconnect,
            strict=self.strict,
            thought_signatures=self.thought_signatures,
            media=self.media,
            first_byte_timeout=first_byte_timeout,
            cdn_loop=self.cdn_loop,
            new_connection=new_connection,
            token_limit=None if self.limit_of is None else self.limit_of(candidate),
            size=self.size,
            hold_answer=self.hold_answer,
            prompt_tokens=self.prompt_tokens,
            timeout=None if self.chat.preferences is None else self.chat.preferences.timeout,
        )
        return ProviderCall(inputs)

    def _await_answer(self, queue: deque[Candidate]) -> Generator[Event, None, Iterator[Event]]:
        """Yield the events before an answer's content; return the others, once a call has begun to answer.

        It is the current call, or a quicker one where the request is hedged.
        """
        events = self._events(queue)
        for event in events:
            provider_call = self.current_call
            if provider_call is not None and provider_call.outcome.first_content_at is not None:
                self._log_success(provider_call)
                answer = chain((event,), events)
                return answer if self.thought_signatures is None else self.thought_signatures.record_thinking(answer)
            yield event
        return iter(())

    def _log_success(self, provider_call: ProviderCall) -> None:
        """Write down that a call has begun to answer; with several calls for one request, a line for each."""
        candidate, outcome = provider_call.inputs.candidate, provider_call.outcome
        line = attempt_entry(candidate, outcome.status, "none", succeeded=True)
        if outcome.calls == 1:
            self._log(provider_call, line, is_over=False)
        else:
            lines = [{**line, "choice": choice} for choice in range(outcome.calls)]
            self._log(provider_call, *lines, is_over=False)
        if candidate.credential.replica is not None:
            replica_choice.health_of(candidate).record_success()
        count_attempt(candidate, "succeeded")

    def _events(self, queue: deque[Candidate]) -> Iterator[Event]:
        """Return the events of the current attempt, raced with a second one where the request is hedged."""
        first = self.current_call
        is_hedged = self.chat.stream and self.chat.answers == 1 and TASKS[self.chat.task].writes_tokens
        if first is None or self.hedge is None or not is_hedged:
            # The cost of a second call beyond the prompt's tokens is not held: for several answers, or for audio.
            return iter(()) if first is None else first.events()
        delay = self.hedge.delay(CIRCUIT_BREAKERS.stats(first.inputs.candidate.mapping).p95_latency)
        if delay is None or not self.hedge.allows(first.inputs.candidate, self.prompt_tokens, self.chat):
            return first.events()
        return self._hedged(first, self.hedge, delay, queue)

    def _hedged(self, first: ProviderCall, hedge: Hedge, delay: float, queue: deque[Candidate]) -> Iterator[Event]:
        running = [first]

        def find_second() -> ProviderCall | None:
            for one in queue:
                asked = first.inputs.candidate
                is_other = one.mapping != asked.mapping or one.credential.replica != asked.credential.replica
                if is_other and hedge.allows(one, self.prompt_tokens, self.chat):
                    queue.remove(one)
                    queue.appendleft(one)
                    running.append(self._begin_call(queue))
                    return running[-1]
            return None

        def on_failure(provider_call: ProviderCall, failure: UpstreamFailure | InvalidRequest) -> None:
            if isinstance(failure, InvalidRequest) and self._is_named(provider_call):
                self.current_call = provider_call
                raise failure
            running.remove(provider_call)
            self.current_call = running[0]
            upstream_failure = failure if isinstance(failure, UpstreamFailure) else None
            if upstream_failure is not None:
                self._log_failure(provider_call, upstream_failure)
            if isinstance(upstream_failure, StaleConnection):
                queue.appendleft(provider_call.inputs.candidate)
                return
            self._drop_provider(queue, provider_call.inputs.candidate, upstream_failure)

        for one in race(first, find_second, delay, self.client_disconnect, on_failure):
            if isinstance(one, Event):
                yield one
                continue
            self.current_call = one
            for loser in running:
                if loser is not one:
                    self.hedge_loser = loser.inputs.candidate
                    lost = attempt_entry(loser.inputs.candidate, loser.outcome.status, "hedge_lost", succeeded=False)
                    self._log(loser, lost)
                    count_attempt(loser.inputs.candidate, "hedge_lost")

    @property
    def _retries_of_model(self) -> int:
        wishes = self.chat.preferences
        return MAX_RETRIES if wishes is None or wishes.retries is None else wishes.retries

    def _is_named(self, provider_call: ProviderCall) -> bool:
        return provider_call.inputs.candidate.provider_id == self.requested_provider

    def _log_failure(self, provider_call: ProviderCall, failure: UpstreamFailure) -> None:
        """Write down a failed attempt; one that had begun to answer is written over."""
        line = attempt_entry(provider_call.inputs.candidate, failure.status, failure.error_type, succeeded=False)
        if provider_call.outcome.has_content:
            self.attempt_log.pop()
            self.attempt_ends.pop()
        self._log(provider_call, line)
        if provider_call.inputs.candidate.credential.replica is not None:
            replica_choice.record_failure(provider_call.inputs.candidate, failure)
        count_attempt(provider_call.inputs.candidate, failure.error_type)
        end_attempt(provider_call, failure.error_type)

    def _drop_provider(self, queue: deque[Candidate], candidate: Candidate, failure: UpstreamFailure | None) -> None:
        """Remove a failed provider's other credentials from the queue, unless only the one used is to blame; replicas
        of its server stay."""
        replica = candidate.credential.replica
        others = [one for one in queue if one.mapping == candidate.mapping and one.credential.replica == replica]
        rested = failure is not None and credentials.cool_down(
            candidate.credential, failure.status, failure.retry_after
        )
        if rested and others:
            return
        for one in others:
            queue.remove(one)
        evidence = None if failure is None else evidence_of(candidate, failure)
        if evidence is not None:
            self.failure_evidence.append(evidence)


def _drop_model(queue: deque[Candidate], candidate: Candidate) -> None:
    """Remove the model's other providers from the queue, which leaves the client's fallback models."""
    for one in [one for one in queue if one.model_id == candidate.model_id]:
        queue.remove(one)


def backoff(retry: int, retry_after: float | None) -> float:
    """Return seconds to wait: exponential with full jitter, or what the provider asks for, up to the cap."""
    if retry_after is not None:
        return min(retry_after, _BACKOFF_CAP)
    return random.uniform(0, min(_BACKOFF_BASE * 2**retry, _BACKOFF_CAP))  # noqa: S311 - jitter, not a secret

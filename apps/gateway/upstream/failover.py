"""Calling providers, one candidate after another, until one begins to answer. After that there is no going back.

Knows the order of things within a request's attempts. Must never know a wire format by name, a price, or a client's.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import gevent
import msgspec

from apps.gateway.access import credentials
from apps.gateway.canonical.chat import Chat, Loss
from apps.gateway.canonical.events import Event
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.failures import StaleConnection, UpstreamFailure
from apps.gateway.metrics.buffer import add, labeled_child
from apps.gateway.metrics.definitions import ATTEMPTS
from apps.gateway.metrics.request_metrics import provider_label
from apps.gateway.routing.candidates import Candidate
from apps.gateway.routing.circuit_breaker import CIRCUIT_BREAKERS
from apps.gateway.routing.failure_attribution import FailureEvidence, evidence_of
from apps.gateway.upstream.call_provider import ProviderCall
from apps.gateway.upstream.hedge import Hedge, race
from apps.gateway.upstream.remote_media import RemoteMedia
from apps.gateway.upstream.thought_signature_cache import ThoughtSignatureCache
from apps.kernel.errors import ApiError, InvalidRequest

MAX_RETRIES = 3
_BACKOFF_BASE, _BACKOFF_CAP = 0.1, 2.0
# Seconds that a provider has to show that it works again.
PROBE_PATIENCE = 5.0


class Failover(msgspec.Struct, eq=False):
    """What became of a request's attempts: who answered, what was tried, when the first content came."""

    chat: Chat
    candidates: tuple[Candidate, ...]
    departure: ClientDisconnect
    seals: ThoughtSignatureCache | None = None
    strict: bool = False
    # The deployments that the request has passed (`loop_detection.py`).
    hops: str = ""
    # The provider that the client named: what its format cannot say is refused, and answered by nobody else.
    named: str | None = None
    # Whether the first candidate is only tried to find out whether it works again.
    probe: bool = False
    tried: list[dict[str, Any]] = []
    suspicions: list[FailureEvidence] = []
    media: RemoteMedia = msgspec.field(default_factory=RemoteMedia)
    # Whether a second provider is asked when the first is late, for a prompt of about so many tokens.
    hedge: Hedge | None = None
    prompt_tokens: int = 0
    # The limit that an answer is given for what is held, in tokens, by candidate; None where nothing has to be limited.
    limit_of: Callable[[Candidate], int | None] | None = None
    # What befell the answer that the client should know of.
    notices: list[Loss] = []
    # Bytes of the client's body, and who is told of those of a large answer.
    size: int = 0
    hold_answer: Callable[[int], object] | None = None
    # Who was closed because another was quicker.
    outrun: Candidate | None = None
    # The attempt that answers, or was made last.
    current: ProviderCall | None = None

    @property
    def latest(self) -> Candidate:
        """Whoever answers, or was asked last, or would be asked first."""
        return self.current.candidate if self.current else self.candidates[0]

    @property
    def answering(self) -> bool:
        """Whether an answer has begun."""
        return self.current is not None and self.current.begun

    @property
    def first_content_at(self) -> float | None:
        """When the answer began, on the monotonic clock."""
        return self.current.first_content_at if self.current else None

    @property
    def received(self) -> int:
        """Bytes of the answer."""
        return self.current.received if self.current else 0

    @property
    def losses(self) -> list[Loss]:
        """What was left out of the request that is being answered, or set in it, and what befell the answer."""
        current = self.current
        if current is None or not (current.notices or self.notices):
            return current.losses if current else self.notices
        return [*current.losses, *current.notices, *self.notices]

    @property
    def healed(self) -> bool:
        """Whether the answer's JSON had to be put right."""
        return self.current is not None and self.current.healing is not None and self.current.healing.healed

    def run(self) -> Iterator[Event]:
        """Yield the events of the first candidate that answers. Raises ApiError when none does, ClientGone."""
        queue = deque(self.candidates)
        failed: ApiError | None = None
        retries = 0
        self.current = self._next(queue, patience=PROBE_PATIENCE if self.probe else None)
        while True:
            try:
                yield from self._follow(queue)
                return
            except UpstreamFailure as failure:
                attempt = self.current
                self._note(attempt, failure)
                if isinstance(failure, StaleConnection) and not attempt.fresh:
                    # Nobody was at the end of a kept connection: neither the provider's fault nor one of the retries.
                    self.current = self._next(deque((attempt.candidate,)), attempt.patience)
                    self.current.fresh = True
                    continue
                failed = failure.as_error(attempt.candidate.provider_id)
                self._strike_out(queue, attempt.candidate, failure)
                if attempt.begun or not failure.retryable or not queue or retries == MAX_RETRIES:
                    raise failed from failure
                with self.departure.interrupts():
                    gevent.sleep(_backoff(retries, failure.retry_after))
            except InvalidRequest:
                # This provider's format cannot say what is asked, or all of it; it was not called. Another's may.
                self._strike_out(queue, self.current.candidate, None)
                if self._is_named(self.current) or not queue or retries == MAX_RETRIES:
                    if failed is not None:
                        raise failed from None
                    raise
            retries += 1
            self.current = self._next(queue)

    def _next(self, queue: deque[Candidate], patience: float | None = None) -> ProviderCall:
        candidate = queue.popleft()
        return ProviderCall(
            self.chat,
            candidate,
            self.departure,
            strict=self.strict,
            seals=self.seals,
            media=self.media,
            patience=patience,
            hops=self.hops,
            limit=None if self.limit_of is None else self.limit_of(candidate),
            size=self.size,
            hold_answer=self.hold_answer,
        )

    def _follow(self, queue: deque[Candidate]) -> Iterator[Event]:
        """Yield the events of the current attempt, or of whoever is quicker, and write down when an answer begins."""
        events = self._events(queue)
        for event in events:
            attempt = self.current
            if attempt is not None and attempt.begun:
                self.tried.append(_attempt_entry(attempt.candidate, attempt.status, "none", succeeded=True))
                _count(attempt.candidate, "succeeded")
                # From here on there is nothing more to write down.
                answer = chain((event,), events)
                yield from answer if self.seals is None else self.seals.watched(answer)
                return
            yield event

    def _events(self, queue: deque[Candidate]) -> Iterator[Event]:
        """Return the events of the current attempt, raced with a second one where the request is hedged."""
        first = self.current
        if first is None or self.hedge is None or not self.chat.stream:
            return iter(()) if first is None else first.events()
        delay = self.hedge.delay(CIRCUIT_BREAKERS.standing(first.candidate.mapping).late_after)
        if delay is None or not self.hedge.allows(first.candidate, self.prompt_tokens):
            return first.events()
        return self._raced(first, self.hedge, delay, queue)

    def _raced(self, first: ProviderCall, hedge: Hedge, delay: float, queue: deque[Candidate]) -> Iterator[Event]:
        running = [first]

        def find_second() -> ProviderCall | None:
            for one in queue:
                if one.mapping != first.candidate.mapping and hedge.allows(one, self.prompt_tokens):
                    queue.remove(one)
                    queue.appendleft(one)
                    running.append(self._next(queue))
                    return running[-1]
            return None

        def fell(attempt: ProviderCall, failure: UpstreamFailure | InvalidRequest) -> None:
            if isinstance(failure, InvalidRequest) and self._is_named(attempt):
                self.current = attempt
                raise failure
            running.remove(attempt)
            self.current = running[0]
            told = failure if isinstance(failure, UpstreamFailure) else None
            if told is not None:
                self._note(attempt, told)
            if isinstance(told, StaleConnection):
                queue.appendleft(attempt.candidate)
                return
            self._strike_out(queue, attempt.candidate, told)

        for one in race(first, find_second, delay, self.departure, fell):
            if isinstance(one, Event):
                yield one
                continue
            self.current = one
            for loser in running:
                if loser is not one:
                    self.outrun = loser.candidate
                    self.tried.append(_attempt_entry(loser.candidate, loser.status, "hedge_lost", succeeded=False))
                    _count(loser.candidate, "hedge_lost")

    def _is_named(self, attempt: ProviderCall) -> bool:
        return attempt.candidate.provider_id == self.named

    def _note(self, attempt: ProviderCall, failure: UpstreamFailure) -> None:
        """Write down a failed attempt; one that had begun to answer is written over."""
        line = _attempt_entry(attempt.candidate, failure.status, failure.error_type, succeeded=False)
        if attempt.begun:
            self.tried[-1] = line
        else:
            self.tried.append(line)
        _count(attempt.candidate, failure.error_type)

    def _strike_out(self, queue: deque[Candidate], candidate: Candidate, failure: UpstreamFailure | None) -> None:
        """Take a provider's other credentials off the queue too, unless the one used was what failed."""
        others = [one for one in queue if one.mapping == candidate.mapping]
        rested = failure is not None and credentials.cool_down(
            candidate.credential, failure.status, failure.retry_after
        )
        if rested and others:
            return
        for one in others:
            queue.remove(one)
        suspicion = None if failure is None else evidence_of(candidate, failure)
        if suspicion is not None:
            self.suspicions.append(suspicion)


def _count(candidate: Candidate, outcome: str) -> None:
    add(labeled_child(ATTEMPTS, provider_label(candidate.provider_id), outcome))


def _attempt_entry(candidate: Candidate, status: int | None, error_type: str, *, succeeded: bool) -> dict[str, Any]:
    return {
        "provider": candidate.provider_id,
        "model": candidate.model_name,
        "status_code": status,
        "error_type": error_type,
        "succeeded": succeeded,
    }


def _backoff(retry: int, retry_after: float | None) -> float:
    """Return seconds to wait: exponential with full jitter, or what the provider asks for, up to the cap."""
    if retry_after is not None:
        return min(retry_after, _BACKOFF_CAP)
    return random.uniform(0, min(_BACKOFF_BASE * 2**retry, _BACKOFF_CAP))  # noqa: S311 - jitter, not a secret

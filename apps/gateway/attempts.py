"""Calling providers, one candidate after another, until one begins to answer. After that there is no going back.

Knows the order of things within a request's attempts. Must never know a wire format by name, a price, or a client's.
"""

from __future__ import annotations

import random
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import gevent
from django.conf import settings

from apps.gateway import transport
from apps.gateway.authorization import Request, authorize
from apps.gateway.candidates import Candidate
from apps.gateway.canonical.chat import Chat, Loss, Target
from apps.gateway.canonical.events import Event, Failed, Logprobs, OpaqueDelta, Started, UsageReported, Waiting
from apps.gateway.departure import Departure
from apps.gateway.dialects import Outbound, find_dialect, headers_of, url_of
from apps.gateway.exchange import Budget, Exchange
from apps.gateway.failures import UpstreamFailure, error_type_of, failure_of, retry_after_of
from apps.gateway.framing import BrokenFrames, frames_of
from apps.gateway.metrics import ATTEMPTS
from apps.gateway.tenant_address import pinned_ip
from apps.kernel.errors import ApiError, InvalidRequest

MAX_RETRIES = 3
_BACKOFF_BASE, _BACKOFF_CAP = 0.1, 2.0
# A whole answer may carry pictures; an error's words may not.
_MAX_REPLY_BYTES = 256 * 1024 * 1024
_MAX_ERROR_BYTES = 256 * 1024


@dataclass(slots=True)
class Attempts:
    """What became of a request's attempts: who answered, what was tried, when the first content came."""

    chat: Chat
    candidates: tuple[Candidate, ...]
    departure: Departure
    # Whether what a provider cannot take is a reason not to ask it.
    strict: bool = False
    tried: list[dict[str, Any]] = field(default_factory=list)
    asked: Candidate | None = None
    answering: Candidate | None = None
    first_content_at: float | None = None
    received: int = 0
    # What was left out of the request that is being answered.
    losses: list[Loss] = field(default_factory=list)

    @property
    def latest(self) -> Candidate:
        """Whoever answers, or was asked last, or would be asked first."""
        return self.answering or self.asked or self.candidates[0]

    def run(self) -> Iterator[Event]:
        """Yield the events of the first candidate that answers. Raises ApiError when none does, ClientGone."""
        last = len(self.candidates[: MAX_RETRIES + 1]) - 1
        failed: ApiError | None = None
        for number, candidate in enumerate(self.candidates[: MAX_RETRIES + 1]):
            try:
                yield from self._attempt(candidate)
                return
            except UpstreamFailure as failure:
                self._note(candidate, failure)
                failed = failure.as_error(candidate.provider_id)
                if self.answering is not None or number == last or not failure.retryable:
                    raise failed from failure
                with self.departure.interrupts():
                    gevent.sleep(_backoff(number, failure.retry_after))
            except InvalidRequest:
                # This provider's format cannot say what is asked, or all of it; it was not called. Another's may.
                if number == last:
                    if failed is not None:
                        raise failed from None
                    raise

    def _attempt(self, candidate: Candidate) -> Iterator[Event]:
        """Yield one candidate's events, held back until its first content, so that a failure leaves no trace."""
        self.asked = candidate
        dialect = find_dialect(candidate.offer.dialect)
        if dialect is None:
            raise UpstreamFailure("client_error", f"the wire format of {candidate.provider_id} is not spoken here")
        exchange = yield from self._send(dialect, candidate)
        try:
            held: list[Event] = []
            for event in self._events(dialect, exchange):
                if isinstance(event, Failed):
                    raise failure_of(event.error)
                if self.answering is None:
                    if isinstance(event, Waiting):
                        yield event
                        continue
                    held.append(event)
                    if not _is_content(event):
                        continue
                    self._answered_by(candidate, exchange)
                    yield from held
                else:
                    yield event
            if self.answering is None:
                self._answered_by(candidate, exchange)
                yield from held
        finally:
            self.received += exchange.received
            exchange.close()

    def _send(self, dialect: Outbound, candidate: Candidate) -> Generator[Event, None, Exchange]:
        """Return the exchange with a provider that answered 2xx; yields while it is silent. Raises UpstreamFailure."""
        provider = candidate.offer.provider
        target = Target(
            model_name=candidate.model_name,
            facts=dict(candidate.offer.facts),
            max_output=candidate.offer.max_output,
        )
        body = dialect.write_request(self.chat, target)
        self._take_losses(target)
        own_address = candidate.credential.base_url
        url = url_of(dialect, own_address or provider.base_url, self.chat, target)
        headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream" if self.chat.stream else "application/json",
            "User-Agent": "model-gateway",
            **headers_of(dialect, self.chat, target),
        }
        with self.departure.interrupts():
            headers |= authorize(provider.auth, candidate.credential.secret(), Request("POST", url, headers, body))
            ip = pinned_ip(own_address) if own_address else None
        sending = transport.send("POST", url, headers, body, _budget(), ip)
        with closing(sending):
            while True:
                try:
                    with self.departure.interrupts():
                        next(sending)
                except StopIteration as done:
                    exchange: Exchange = done.value
                    break
                yield Waiting()
        if 200 <= exchange.status < 300:
            return exchange
        try:
            refusal = dialect.read_failure(exchange.status, exchange.read(_MAX_ERROR_BYTES))
            status = refusal.status or exchange.status
            raise UpstreamFailure(
                error_type_of(status),
                refusal.message,
                status=status,
                code=refusal.code,
                param=refusal.param,
                retry_after=retry_after_of(exchange.headers.get("retry-after")),
            )
        finally:
            exchange.close()

    def _take_losses(self, target: Target) -> None:
        """Keep what was left out for this provider. Raises InvalidRequest when the client wants all or nothing."""
        self.losses = target.losses
        if self.strict and target.losses:
            left_out = "; ".join(f"{loss.param}: {loss.message}" for loss in target.losses)
            raise InvalidRequest(
                f"With X-Strict nothing may be left out, and this would be: {left_out}",
                code="unsupported_feature",
                param=target.losses[0].param,
            )

    def _events(self, dialect: Outbound, exchange: Exchange) -> Iterator[Event]:
        """Yield what the provider says; every wait for it ends when the client leaves."""
        if not self.chat.stream:
            with self.departure.interrupts():
                body = exchange.read(_MAX_REPLY_BYTES)
            yield from dialect.read_reply(body)
            return
        try:
            yield from dialect.read_events(frames_of(dialect.FRAMING)(self._interruptible(exchange)))
        except BrokenFrames as error:
            raise UpstreamFailure("network", str(error)) from error

    def _interruptible(self, exchange: Exchange) -> Iterator[bytes]:
        pieces = exchange.pieces()
        while True:
            with self.departure.interrupts():
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece

    def _answered_by(self, candidate: Candidate, exchange: Exchange) -> None:
        self.answering = candidate
        self.first_content_at = time.monotonic()
        self.tried.append(_line(candidate, exchange.status, "none", succeeded=True))
        ATTEMPTS.labels(candidate.provider_id, "succeeded").inc()

    def _note(self, candidate: Candidate, failure: UpstreamFailure) -> None:
        """Write down a failed attempt; one that had begun to answer is written over."""
        line = _line(candidate, failure.status, failure.error_type, succeeded=False)
        if self.answering is not None:
            self.tried[-1] = line
        else:
            self.tried.append(line)
        ATTEMPTS.labels(candidate.provider_id, failure.error_type).inc()


def _is_content(event: Event) -> bool:
    """Return whether an event is part of the answer itself, or a provider's own block of it that begins."""
    if isinstance(event, OpaqueDelta):
        return event.of == "stream"
    return not isinstance(event, Started | UsageReported | Logprobs)


def _line(candidate: Candidate, status: int | None, error_type: str, *, succeeded: bool) -> dict[str, Any]:
    return {
        "provider": candidate.provider_id,
        "model": candidate.model_name,
        "status_code": status,
        "error_type": error_type,
        "succeeded": succeeded,
    }


def _budget() -> Budget:
    return Budget(
        connect=settings.UPSTREAM_CONNECT_TIMEOUT,
        first_byte=settings.UPSTREAM_FIRST_BYTE_TIMEOUT,
        idle=settings.UPSTREAM_IDLE_TIMEOUT,
        total=settings.UPSTREAM_TOTAL_TIMEOUT,
        tick=settings.HEARTBEAT_INTERVAL,
    )


def _backoff(retry: int, retry_after: float | None) -> float:
    """Return seconds to wait: exponential with full jitter, or what the provider asks for, up to the cap."""
    if retry_after is not None:
        return min(retry_after, _BACKOFF_CAP)
    return random.uniform(0, min(_BACKOFF_BASE * 2**retry, _BACKOFF_CAP))  # noqa: S311 - jitter, not a secret
